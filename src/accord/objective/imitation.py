"""Distillation: a student learns what a teacher says of images, and maybe how it sees them."""

from __future__ import annotations

from torch import Tensor
from torch.nn import functional as F

from accord.errors import AccordError
from accord.objective.base import Batch, Term, terms


@terms.register("imitation")
class Imitation(Term):
    """CE(softmax(logits), t): t the teacher's probabilities of each image, in the briefing."""

    def __call__(self, batch: Batch) -> Tensor:
        if batch.targets is None:
            raise AccordError("the term 'imitation' needs a teacher's answers in the briefing.")
        return F.cross_entropy(batch.logits, batch.targets)
