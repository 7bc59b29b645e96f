"""The alignment term of anchors: fixed points, the same at every client, that prototypes go to."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from accord.core.errors import AccordError
from accord.objective.base import Batch, Term, terms


@terms.register("anchors")
class AnchorAlignment(Term):
    """L_al = mean over elements of (P − A)²: prototypes are pulled to their anchors.

    It reaches P only, never the encoder. Its gradient is 2(P − A)/(C·d), C the classes it is over.
    """

    over: Literal["held", "all"] = Field(
        "held", description="classes that are aligned: those the client holds, or all"
    )
    progressive: bool = Field(
        False, description="aim at (1 − p)·P₀ + p·A: from the first prototypes to the anchors (V8)"
    )

    def __call__(self, batch: Batch) -> Tensor:
        gap = (batch.prototypes - self.target(batch)).square().mean(dim=1)
        return gap[batch.held].mean() if self.over == "held" else gap.mean()

    def target(self, batch: Batch) -> Tensor:
        if batch.anchors is None:
            raise AccordError("the term 'anchors' needs a recipe with `anchors:`, such as etf.")
        if not self.progressive:
            return batch.anchors
        if batch.first_prototypes is None:
            raise ValueError("progressive anchors need P₀")
        return batch.first_prototypes.lerp(batch.anchors, batch.progress)
