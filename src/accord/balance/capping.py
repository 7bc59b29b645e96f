"""The regulariser γ/σ_a², which bounds λ. γ is given, or computed from a cap on λ.

With it σ_a² ≥ 2γ/b at equilibrium, so λ ≤ b·L_loc/(2γ). `auto` takes γ = L_loc/(2·λ_cap), with
L_loc measured on the first batches. λ stays below λ_cap as long as L_loc does not rise above that
value.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from accord.balance.attenuated import AttenuatedBalance
from accord.balance.entropy import Entropy
from accord.balance.sigmas import Momentum

FIRST_BATCHES = 10


class CappedBalance(AttenuatedBalance):
    """σ with γ. By default σ has no momentum: with momentum, λ can be several times the cap."""

    gamma: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="γ; auto computes it from lambda_cap and the first batches"
    )
    lambda_cap: float = Field(50.0, gt=0, description="the largest λ that `gamma: auto` allows")
    momentum: Momentum = Field(0.0, description="momentum of σ; net means the net's momentum")

    @model_validator(mode="after")
    def _starts_under_the_cap(self) -> CappedBalance:
        if self.start_local == "entropy":
            start = Entropy().lambda_max
        else:
            start = math.exp(self.start_local - self.start_align)
        if self.gamma == "auto" and start > self.lambda_cap:
            raise ValueError(
                f"lambda_cap should not be smaller than the λ that training starts with "
                f"({start:.4g}); found {self.lambda_cap}"
            )
        return self


class Gamma(nn.Module):
    """The current γ, which is given or computed during the first batches."""

    local_sum: Tensor
    batches: Tensor

    def __init__(self, rule: CappedBalance) -> None:
        super().__init__()
        self.rule = rule
        self.register_buffer("local_sum", torch.zeros(()))
        self.register_buffer("batches", torch.zeros(()))

    def see(self, local: Tensor) -> None:
        """Adds L_loc of a batch to the mean, if it is one of the first batches."""
        early = (self.batches < FIRST_BATCHES).to(local.dtype)
        self.local_sum = self.local_sum + early * local
        self.batches = self.batches + early

    def value(self) -> Tensor | float:
        if self.rule.gamma != "auto":
            return self.rule.gamma
        return self.local_sum / self.batches.clamp(min=1) / (2 * self.rule.lambda_cap)
