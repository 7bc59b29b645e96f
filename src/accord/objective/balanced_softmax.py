"""Balanced softmax (Ren et al., 2020, arXiv 2007.10740), which corrects scores for label skew."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("balanced-softmax")
class BalancedSoftmax(Term):
    """CE(zPᵀ/τ + log n, y): log n accounts for the label skew, so the scores need not learn it.

    With `over: all`, n_c is the count + 1 (FedETF). With `over: held`, n_c is the count, and the
    classes that the client does not hold are left out: their prototypes are not pushed away.
    """

    temperature: float = Field(0.1, gt=0, description="τ")
    over: Literal["all", "held"] = Field(
        "held", description="classes in the softmax: those the client holds, or all"
    )

    def __call__(self, batch: Batch) -> Tensor:
        counts = batch.label_counts.to(batch.features.dtype)
        prior = (counts + 1).log() if self.over == "all" else counts.log()
        scores = batch.directions @ batch.prototypes.T / self.temperature
        return F.cross_entropy(scores + prior, batch.labels)
