"""The loss terms of a client, and the anchors to which prototypes are aligned."""

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
