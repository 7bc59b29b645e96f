"""A federation by files: brief, answer and fuse, without a network and without a record."""
