"""Distillation: a student learns what a teacher says of images, and how it sees them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("imitation")
class Imitation(Term):
    """CE(softmax(logits), t): t the teacher's probabilities of each image."""

    def __call__(self, batch: Batch) -> Tensor:
        return F.cross_entropy(batch.logits, batch.taught("targets"))


@terms.register("feature-imitation")
class FeatureImitation(Term):
    """1 − cos(f, t_f), averaged: t_f the teacher's feature of each image."""

    def __call__(self, batch: Batch) -> Tensor:
        taught = F.normalize(batch.taught("target_features"), dim=1)
        return 1 - (batch.directions * taught).sum(dim=1).mean()
