"""Attenuation of the log term of σ_a, where it takes effect.

It is our own rule, after λ had diverged in note 003 (docs/notes.md).
"""

from __future__ import annotations

from torch import Tensor

from accord.balance.base import Step, Weigher, Weights, balances
from accord.balance.capping import CappedBalance, Gamma
from accord.balance.sigmas import Shape, SigmaWeigher
from accord.core.schedules import falling


@balances.register("attenuated-log")
class AttenuatedLog(CappedBalance):
    """The net minimises L_loc + λ_raw·L_al; in the loss of σ, s(p) multiplies ½ log σ_a².

    σ minimises L_loc/(2σ_l²) + (L_al + 2γ)/(2σ_a²) + ½ log σ_l² + ½ s·log σ_a², which converges to
    λ_raw = s·L_loc/(L_al + 2γ). This weight does fall with s, and γ bounds it.
    """

    def start(self, label_counts: Tensor) -> Weigher:
        return AttenuatedLogWeigher(self, label_counts)


class AttenuatedLogWeigher(SigmaWeigher):
    def __init__(self, rule: AttenuatedLog, label_counts: Tensor) -> None:
        super().__init__(rule, label_counts)
        self.attenuation = rule.attenuation
        self.gamma = Gamma(rule)

    def shape(self, progress: float) -> Shape:
        return Shape(log=falling(self.attenuation, progress), gamma=self.gamma.value())

    def weigh(self, step: Step) -> Weights:
        self.gamma.see(step.local)  # s acts through the loss of σ, so it is not a factor here
        return Weights(align=self.lambda_raw())
