"""Fused models on disk: saving, loading, prediction and export."""
