"""Anchors with the largest possible angles between C directions (OursV7 and later of the notes)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.objective.base import Anchors, anchor_kinds


@anchor_kinds.register("etf")
class SimplexETF(Anchors):
    """Simplex equiangular tight frame: A = √(C/(C−1)) · (I − 11ᵀ/C) Uᵀ, UᵀU = I, U ∈ R^{d×C}.

    The rows have length 1 and pairwise cosine −1/(C−1), the smallest that C directions can have.
    """

    def make(self, classes: int, width: int, generator: torch.Generator) -> Tensor:
        if classes < 2:
            raise AccordError(
                f"ETF anchors need at least 2 classes; found {classes}. Choose a recipe without "
                "ETF anchors."
            )
        if width < classes:
            raise AccordError(
                f"ETF anchors need an encoder at least as wide as there are classes; found width "
                f"{width} and {classes} classes. Choose a wider net.backbone, or random anchors."
            )
        normal = torch.randn(width, classes, generator=generator, dtype=torch.float64)
        U, _ = torch.linalg.qr(normal)
        centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
        frame: Tensor = math.sqrt(classes / (classes - 1)) * centred @ U.T
        return frame.float()
