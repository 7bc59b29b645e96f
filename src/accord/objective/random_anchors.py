"""Anchors in random directions (OursV5 of the notes)."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Anchors, anchor_kinds


@anchor_kinds.register("random")
class RandomRows(Anchors):
    """A has unit rows in random directions, for any C and d; large d makes them near-orthogonal."""

    def make(self, classes: int, width: int, generator: torch.Generator) -> Tensor:
        normal = torch.randn(classes, width, generator=generator, dtype=torch.float64)
        return F.normalize(normal, dim=1).float()
