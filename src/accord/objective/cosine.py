"""A loss that pulls each image to the prototype of its class and ignores the other prototypes."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("cosine")
class CosinePull(Term):
    """mean_i (1 − cos(z_i, P[y_i])) (FedSRA). It needs no negatives and works with one class."""

    def __call__(self, batch: Batch) -> Tensor:
        own = F.normalize(batch.prototypes, dim=1)[batch.labels]
        return (1 - (batch.directions * own).sum(dim=1)).mean()
