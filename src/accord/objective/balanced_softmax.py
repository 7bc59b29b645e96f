"""Balanced softmax (Ren et al., 2020, arXiv 2007.10740): the skew of labels is not to be learnt."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("balanced-softmax")
class BalancedSoftmax(Term):
    """CE(zPᵀ/τ + log n, y): the client's label counts explain its skew, so the scores need not.

    Over `all` classes n_c is the count + 1 (FedETF); over `held` ones it is the count, and classes
    that the client has not are left out: it does not learn to push them away.
    """

    temperature: float = Field(0.1, gt=0, description="τ")
    over: Literal["all", "held"] = Field("held", description="the classes that compete")

    def __call__(self, batch: Batch) -> Tensor:
        counts = batch.label_counts.to(batch.features.dtype)
        prior = (counts + 1).log() if self.over == "all" else counts.log()
        scores = batch.directions @ batch.prototypes.T / self.temperature
        return F.cross_entropy(scores + prior, batch.labels)
