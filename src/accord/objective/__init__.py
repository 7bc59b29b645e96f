"""The loss terms of a client, and the anchors that prototypes are aligned to."""

from accord.objective.base import (
    Anchors,
    Batch,
    Term,
    anchor_kinds,
    make_alignment,
    make_term,
    terms,
)

__all__ = ["Anchors", "Batch", "Term", "anchor_kinds", "make_alignment", "make_term", "terms"]
