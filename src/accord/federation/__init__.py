"""A federation at work: brief the clients, collect their uploads, advance, fuse, measure."""
