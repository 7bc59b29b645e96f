"""Anchors: fixed points, the same at every client, that prototypes are pulled to."""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from accord.errors import AccordError
from accord.objective.base import Anchors, Batch, Term, anchor_kinds, terms


@anchor_kinds.register("etf")
class SimplexETF(Anchors):
    """Simplex equiangular tight frame: A = √(C/(C−1)) · (I − 11ᵀ/C) Uᵀ, UᵀU = I, U ∈ R^{d×C}.

    Unit rows, pairwise cosine −1/(C−1): the most that C directions can be apart.
    """

    def make(self, classes: int, width: int, generator: torch.Generator) -> Tensor:
        if width < classes:
            raise AccordError(
                f"ETF anchors need an encoder at least as wide as there are classes; found width "
                f"{width} and {classes} classes. Choose a wider net.backbone."
            )
        normal = torch.randn(width, classes, generator=generator, dtype=torch.float64)
        U, _ = torch.linalg.qr(normal)
        centred = torch.eye(classes, dtype=torch.float64) - 1 / classes
        frame: Tensor = math.sqrt(classes / (classes - 1)) * centred @ U.T
        return frame.float()


@terms.register("anchors")
class AnchorAlignment(Term):
    """L_al = mean over elements of (P − A)²: prototypes are pulled to their anchors.

    It reaches P only, never the encoder.
    """

    over: Literal["held", "all"] = Field(
        "held", description="classes that are aligned: those the client holds, or all"
    )

    def __call__(self, batch: Batch) -> Tensor:
        if batch.anchors is None:
            raise AccordError("the term 'anchors' needs a recipe with `anchors:`, such as etf.")
        gap = (batch.prototypes - batch.anchors).square().mean(dim=1)
        return gap[batch.held].mean() if self.over == "held" else gap.mean()
