"""Uploads → one predictor: one file per rule."""

from accord.fusion.base import Combiner, Fusion, Outputs, Summary, fusions

__all__ = ["Combiner", "Fusion", "Outputs", "Summary", "fusions"]
