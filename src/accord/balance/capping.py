"""γ/σ_a²: the regulariser that keeps λ from exploding, given or found from a cap.

With it σ_a² ≥ 2γ/b at equilibrium, so λ ≤ b·L_loc/(2γ). `auto` takes γ = L_loc/(2·λ_cap) with
L_loc measured on the first batches: λ stays under λ_cap as long as L_loc does not rise above that.
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
    """σ with γ. Momentum is 0 unless told: with it σ overshoots the cap several-fold."""

    gamma: Annotated[float, Field(ge=0)] | Literal["auto"] = Field(
        "auto", description="γ; auto: from lambda_cap and the first batches"
    )
    lambda_cap: float = Field(50.0, gt=0, description="the λ that `gamma: auto` allows")
    momentum: Momentum = Field(0.0, description="of σ; net: as the net's")

    @model_validator(mode="after")
    def _starts_under_the_cap(self) -> CappedBalance:
        if self.start_local == "entropy":
            start = Entropy().lambda_max
        else:
            start = math.exp(self.start_local - self.start_align)
        if self.gamma == "auto" and start > self.lambda_cap:
            raise ValueError(
                f"lambda_cap should not lie below the λ that training starts with ({start:.4g}); "
                f"found {self.lambda_cap}"
            )
        return self


class Gamma(nn.Module):
    """γ as it stands: given, or found while the first batches pass."""

    local_sum: Tensor
    batches: Tensor

    def __init__(self, rule: CappedBalance) -> None:
        super().__init__()
        self.rule = rule
        self.register_buffer("local_sum", torch.zeros(()))
        self.register_buffer("batches", torch.zeros(()))

    def see(self, local: Tensor) -> None:
        """Notes L_loc of a batch, while it is one of the first."""
        early = (self.batches < FIRST_BATCHES).to(local.dtype)
        self.local_sum = self.local_sum + early * local
        self.batches = self.batches + early

    def value(self) -> Tensor | float:
        if self.rule.gamma != "auto":
            return self.rule.gamma
        return self.local_sum / self.batches.clamp(min=1) / (2 * self.rule.lambda_cap)
