"""A control for `uncertainty`: it has the smaller learning rate, but not the learnt λ."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from accord.balance.base import Group, Readings, Step, Weigher, Weights, balances
from accord.balance.sigmas import LearntBalance


@balances.register("rescaled")
class Rescaled(LearntBalance):
    """L = (L_loc + λ·L_al)/(2σ_l²), where σ_l is learnt from L_loc/(2σ_l²) + ½ log σ_l².

    `uncertainty` does two things at once: it chooses λ, and it divides L_loc by 2σ_l² → 2·L_loc,
    which reduces the learning rate. This rule does only the second. At λ = 0 the alignment loss is
    recorded but has no effect.
    """

    weighs_local = True

    lambda_: float = Field(0.0, ge=0, alias="lambda", description="λ, a constant alignment weight")

    def start(self, label_counts: Tensor) -> Weigher:
        return RescaledWeigher(self, label_counts)


class RescaledWeigher(Weigher):
    def __init__(self, rule: Rescaled, label_counts: Tensor) -> None:
        super().__init__()
        self.rule = rule
        self.log_local = nn.Parameter(torch.tensor(rule.start_of_local(label_counts)))

    def weigh(self, step: Step) -> Weights:  # noqa: ARG002 - depends on σ_l alone
        local = (-self.log_local).detach().exp() / 2
        return Weights(align=self.rule.lambda_ * local, local=local)

    def own_loss(self, step: Step) -> Tensor | None:
        return (step.local * (-self.log_local).exp() + self.log_local) / 2

    def readings(self, progress: float) -> Readings:  # noqa: ARG002 - λ is constant
        return Readings(self.rule.lambda_, sigma_sq_local=self.log_local.detach().exp().item())

    def groups(self) -> list[Group]:
        return [self.rule.group([self.log_local])]
