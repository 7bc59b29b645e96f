"""Fusion rules, which make one predictor from the clients' uploads, one file per rule."""

from accord.fusion.base import Combiner, Fusion, Outputs, Summary, fusions

__all__ = ["Combiner", "Fusion", "Outputs", "Summary", "fusions"]
