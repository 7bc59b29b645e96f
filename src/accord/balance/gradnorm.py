"""A weight that balances gradients (GradNorm, Chen et al. 2018, arXiv 1711.02257).

Note 000 (docs/notes.md) proposes such a weight after its two separate stages had failed.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from accord.balance.base import Balance, Readings, Step, Weigher, Weights, balances


@balances.register("gradnorm")
class GradNorm(Balance):
    """L = L_loc + w·L_al, where w makes ‖w∇L_al‖ follow ‖∇L_loc‖·(r_al/r_loc)^a.

    r = L/L_max is the inverse training rate of a loss, and L_max is its largest value so far. (The
    paper takes the first value, but L_al of a moving target may start at 0.) The loss that falls
    more slowly gets the larger gradient. Norms are taken over the parameters that both losses
    depend on. w is a moving average of its targets. As L_al → 0, its gradient falls like √L_al and
    r_al like L_al. Therefore, with a > ½, w falls too, and the rule cannot diverge as the
    uncertainty family does.
    """

    rate: float = Field(
        1.0, ge=0, description="a; 0 makes the norms equal and ignores the training rates"
    )
    memory: float = Field(0.9, ge=0, lt=1, description="m of w ← m·w + (1 − m)·target")
    highest: float = Field(1000.0, gt=0, description="upper bound of the target")

    def start(self, label_counts: Tensor) -> Weigher:  # noqa: ARG002 - needs gradients alone
        return GradNormWeigher(self)


class GradNormWeigher(Weigher):
    wants_gradients = True
    weight: Tensor
    largest_local: Tensor
    largest_align: Tensor

    def __init__(self, rule: GradNorm) -> None:
        super().__init__()
        self.rule = rule
        self.register_buffer("weight", torch.tensor(math.nan))  # NaN: no target seen yet
        self.register_buffer("largest_local", torch.zeros(()))
        self.register_buffer("largest_align", torch.zeros(()))

    def weigh(self, step: Step) -> Weights:
        if step.gradients is None:
            raise ValueError("gradnorm needs the gradients of every step")
        self.largest_local = torch.maximum(self.largest_local, step.local)
        self.largest_align = torch.maximum(self.largest_align, step.align)
        norm_local, norm_align, _ = step.gradients.summary()
        behind = (step.align / self.largest_align) / (step.local / self.largest_local)
        target = norm_local / norm_align * behind**self.rule.rate
        # A loss of exactly zero has no training rate and no gradient: w does not change.
        target = torch.where(target.isfinite(), target, self.weight).clamp(max=self.rule.highest)
        kept = self.rule.memory * self.weight + (1 - self.rule.memory) * target
        self.weight = torch.where(self.weight.isnan(), target, kept)
        return Weights(align=self.current())

    def current(self) -> Tensor:
        """w, or 1 before the first target."""
        return self.weight.nan_to_num(nan=1.0)

    def readings(self, progress: float) -> Readings:  # noqa: ARG002 - depends on gradients alone
        return Readings(self.current().item())
