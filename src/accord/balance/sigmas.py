"""Two learnt variances, which all rules of the uncertainty family use.

A client learns log σ_l² and log σ_a² by minimising

    L_loc/(2σ_l²) + (a·L_al + 2γ)/(2σ_a²) + ½ log σ_l² + ½ b·log σ_a²

(Kendall et al. 2018, arXiv 1705.07115, at a = b = 1, γ = 0). With constant losses this converges to
σ_l² = L_loc and σ_a² = (a·L_al + 2γ)/b, so λ* = σ_l²/σ_a² = b·L_loc/(a·L_al + 2γ). Each rule of
the family defines a, b and γ, and how the weights of the net's losses depend on σ.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from accord.balance.base import Balance, Group, Readings, Step, Weigher
from accord.balance.entropy import Entropy

Momentum = Annotated[float, Field(ge=0, lt=1)] | Literal["net"]


class LearntBalance(Balance):
    """The initial value of σ_l and the settings of its training."""

    start_local: float | Literal["entropy"] = Field(
        0.0,
        description="log σ_l² at the start; entropy makes the first λ equal to λ_k of `entropy`",
    )
    lr_factor: float = Field(
        1.0, gt=0, description="learning rate of σ, as a multiple of the net's learning rate"
    )
    momentum: Momentum = Field("net", description="momentum of σ; net means the net's momentum")
    clip: Literal["together", "apart"] = Field(
        "together",
        description="gradient clipping of σ: together with the net's gradient, or apart from it",
    )

    def start_of_local(self, label_counts: Tensor) -> float:
        """log σ_l² at the start, if σ_a² starts at 1."""
        if self.start_local == "entropy":
            return math.log(Entropy().lambda_of(label_counts))
        return self.start_local

    def group(self, parameters: list[nn.Parameter]) -> Group:
        return Group(parameters, self.lr_factor, self.momentum, self.clip)


class SigmaBalance(LearntBalance):
    """The initial values of both σ and the settings of their training."""

    start_align: float = Field(0.0, description="log σ_a² at the start")

    def start_of_local(self, label_counts: Tensor) -> float:
        shift = self.start_align if self.start_local == "entropy" else 0.0
        return super().start_of_local(label_counts) + shift


@dataclass(frozen=True)
class Shape:
    """a, b and γ of the loss that σ minimises."""

    data: float = 1.0  # a
    log: float = 1.0  # b
    gamma: Tensor | float = 0.0  # γ


class SigmaWeigher(Weigher):
    """log σ_l² and log σ_a² of one client. A rule defines `shape` and `weigh`."""

    def __init__(self, rule: SigmaBalance, label_counts: Tensor) -> None:
        super().__init__()
        self.rule = rule
        self.log_local = nn.Parameter(torch.tensor(rule.start_of_local(label_counts)))
        self.log_align = nn.Parameter(torch.tensor(rule.start_align))

    def shape(self, progress: float) -> Shape:  # noqa: ARG002 - constant by default
        return Shape()

    def lambda_raw(self) -> Tensor:
        """σ_l²/σ_a², detached from the graph."""
        return (self.log_local - self.log_align).detach().exp()

    def own_loss(self, step: Step) -> Tensor | None:
        shape = self.shape(step.progress)
        local = step.local * (-self.log_local).exp() + self.log_local
        pull = shape.data * step.align + 2 * shape.gamma
        align = pull * (-self.log_align).exp() + shape.log * self.log_align
        return (local + align) / 2

    def equilibrium(self, local: float, align: float, progress: float) -> float | None:
        shape = self.shape(progress)
        pull = shape.data * align + 2 * float(shape.gamma)
        return shape.log * local / pull if pull > 0 else None

    def readings(self, progress: float) -> Readings:
        gamma = float(self.shape(progress).gamma)
        return Readings(
            lambda_raw=self.lambda_raw().item(),
            sigma_sq_local=self.log_local.detach().exp().item(),
            sigma_sq_align=self.log_align.detach().exp().item(),
            gamma=gamma or None,
        )

    def groups(self) -> list[Group]:
        return [self.rule.group([self.log_local, self.log_align])]
