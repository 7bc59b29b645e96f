"""A constant weight per client, computed from its label entropy (OursV9 of the notes)."""

from __future__ import annotations

import math

from pydantic import Field, model_validator
from torch import Tensor

from accord.balance.base import Balance, Weigher, balances
from accord.balance.fixed import FixedWeigher
from accord.core.schedules import Fall


@balances.register("entropy")
class Entropy(Balance):
    """L = L_loc + s(p)·λ_k·L_al, λ_k = λ_min + (H_k / log₂C)·(λ_max − λ_min).

    H_k = −Σ_c (n_kc/n_k) log₂(n_kc/n_k) is client k's label entropy in bits. A client with few
    classes has a small λ_k; a client with equally many images of every class has λ_max.
    """

    lambda_min: float = Field(0.1, ge=0, description="λ of a client with a single class")
    lambda_max: float = Field(
        10.0, ge=0, description="λ of a client with equally many images of every class"
    )
    attenuation: Fall = Field("constant", description="s(p), the same as for `fixed`")

    @model_validator(mode="after")
    def _ordered(self) -> Entropy:
        if self.lambda_min > self.lambda_max:
            raise ValueError(
                f"lambda_min should not exceed lambda_max; found {self.lambda_min} and "
                f"{self.lambda_max}"
            )
        return self

    def start(self, label_counts: Tensor) -> Weigher:
        return FixedWeigher(self.lambda_of(label_counts), self.attenuation)

    def lambda_of(self, label_counts: Tensor) -> float:
        """λ_k of a client with these labels."""
        share = normalised_entropy(label_counts)
        return self.lambda_min + share * (self.lambda_max - self.lambda_min)


def entropy_bits(label_counts: Tensor) -> float:
    """H_k in bits."""
    counts = label_counts.double()
    held = counts[counts > 0] / counts.sum()
    return max(0.0, -(held * held.log2()).sum().item())


def normalised_entropy(label_counts: Tensor) -> float:
    """H_k / log₂C ∈ [0, 1]; 0 if there is only one class."""
    classes = len(label_counts)
    return entropy_bits(label_counts) / math.log2(classes) if classes > 1 else 0.0
