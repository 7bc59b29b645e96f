"""Advice: what a federation looks like, and which recipe, fusion and budget fit it."""
