"""Compares the recipes of one or several runs with a baseline."""
