"""Knowledge distillation from the server's teacher (Hinton et al., 2015, arXiv:1503.02531)."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("distillation")
class Distillation(Term):
    """τ²·KL(softmax(t/τ) ‖ softmax(s/τ)), the mean over images.

    t are the teacher's logits and s the net's logits of the same views. The factor τ² keeps the
    size of the gradient for every temperature.
    """

    temperature: float = Field(4.0, gt=0, description="τ, which softens both distributions")

    def __call__(self, batch: Batch) -> Tensor:
        taught = (batch.taught("teacher_logits") / self.temperature).log_softmax(dim=1)
        own = (batch.logits / self.temperature).log_softmax(dim=1)
        return self.temperature**2 * F.kl_div(own, taught, reduction="batchmean", log_target=True)

    def uses_teacher(self) -> bool:
        return True
