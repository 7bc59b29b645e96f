"""The alignment term that pulls prototypes to anchors: fixed points, equal at every client."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor

from accord.core.errors import AccordError
from accord.objective.base import Batch, Term, terms


@terms.register("anchors")
class AnchorAlignment(Term):
    """L_al = mean over elements of (P − A)²: prototypes are pulled to their anchors.

    L_al depends on P alone, not on the encoder. Its gradient is 2(P − A)/(C·d), where C is the
    number of aligned classes.
    """

    over: Literal["held", "all"] = Field(
        "held", description="classes that are aligned: those the client holds, or all"
    )
    progressive: bool = Field(
        False,
        description="the target moves from the first prototypes to the anchors, (1 − p)·P₀ + p·A "
        "(OursV8)",
    )

    def __call__(self, batch: Batch) -> Tensor:
        gap = (batch.prototypes - self.target(batch)).square().mean(dim=1)
        return gap[batch.held].mean() if self.over == "held" else gap.mean()

    def target(self, batch: Batch) -> Tensor:
        if batch.anchors is None:
            raise AccordError(
                "the term 'anchors' needs a recipe with the key `anchors`, such as `anchors: etf`."
            )
        if not self.progressive:
            return batch.anchors
        if batch.first_prototypes is None:
            raise ValueError("progressive anchors need the first prototypes P₀")
        return batch.first_prototypes.lerp(batch.anchors, batch.progress)
