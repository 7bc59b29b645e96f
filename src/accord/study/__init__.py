"""Studies and recipes, as a user writes them, and their checks."""
