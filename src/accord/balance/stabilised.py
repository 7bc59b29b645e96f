"""Attenuated weights that are bounded (the repair of OursV12).

Note 003 (docs/notes.md) proposes the term γ/σ_a² after λ had diverged on SVHN.
"""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from accord.balance.attenuated import AttenuatedWeigher
from accord.balance.base import Step, Weigher, Weights, balances
from accord.balance.capping import CappedBalance, Gamma
from accord.balance.sigmas import Shape


@balances.register("stabilised")
class Stabilised(CappedBalance):
    """`attenuated` with γ/σ_a² in the loss of σ, so that σ_a² converges to s·L_al + 2γ.

    λ_raw = L_loc/(s·L_al + 2γ) never exceeds L_loc/(2γ), even if L_al becomes very small.
    """

    def start(self, label_counts: Tensor) -> Weigher:
        return StabilisedWeigher(self, label_counts)


class StabilisedWeigher(AttenuatedWeigher):
    def __init__(self, rule: Stabilised, label_counts: Tensor) -> None:
        super().__init__(rule, label_counts)
        self.gamma = Gamma(rule)

    def shape(self, progress: float) -> Shape:
        return replace(super().shape(progress), gamma=self.gamma.value())

    def weigh(self, step: Step) -> Weights:
        self.gamma.see(step.local)
        return super().weigh(step)
