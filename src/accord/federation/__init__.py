"""Runs a federation: brief the clients, collect their uploads, advance, fuse, measure."""
