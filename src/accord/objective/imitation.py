"""Distillation: a student learns the teacher's probabilities and features of images."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("imitation")
class Imitation(Term):
    """CE(softmax(logits), t), where t are the teacher's probabilities for each image."""

    def __call__(self, batch: Batch) -> Tensor:
        return F.cross_entropy(batch.logits, batch.taught("targets"))


@terms.register("feature-imitation")
class FeatureImitation(Term):
    """The mean of 1 − cos(f, t_f), where t_f is the teacher's feature of each image."""

    def __call__(self, batch: Batch) -> Tensor:
        taught = F.normalize(batch.taught("target_features"), dim=1)
        return 1 - (batch.directions * taught).sum(dim=1).mean()
