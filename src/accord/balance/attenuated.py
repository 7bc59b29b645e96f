"""Learnt weights that are meant to fall with progress, but diverge (OursV12 of the notes).

Note 003 (docs/notes.md) reports that λ reached 4 million on SVHN and that the accuracy collapsed.
"""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field
from torch import Tensor

from accord.balance.base import Readings, Step, Weigher, Weights, balances
from accord.balance.sigmas import Shape, SigmaBalance, SigmaWeigher
from accord.core.schedules import Fall, falling


class AttenuatedBalance(SigmaBalance):
    """σ with a factor s(p) that falls over training."""

    attenuation: Fall = Field(
        "linear", description="s(p): linear (1 − p), cosine (½(1 + cos πp)) or constant (1)"
    )


@balances.register("attenuated")
class Attenuated(AttenuatedBalance):
    """The net minimises L_loc + s(p)·λ_raw·L_al; in the loss of σ, s multiplies L_al/(2σ_a²).

    σ minimises L_loc/(2σ_l²) + s·L_al/(2σ_a²) + ½ log σ_l² + ½ log σ_a². Therefore
    λ_raw = σ_l²/σ_a² converges to L_loc/(s·L_al), and the effective weight s·λ_raw converges to
    L_loc/L_al: the attenuation cancels itself, and λ grows without bound as L_al → 0.
    """

    def start(self, label_counts: Tensor) -> Weigher:
        return AttenuatedWeigher(self, label_counts)


class AttenuatedWeigher(SigmaWeigher):
    def __init__(self, rule: AttenuatedBalance, label_counts: Tensor) -> None:
        super().__init__(rule, label_counts)
        self.attenuation = rule.attenuation

    def shape(self, progress: float) -> Shape:
        return Shape(data=falling(self.attenuation, progress))

    def weigh(self, step: Step) -> Weights:
        return Weights(align=falling(self.attenuation, step.progress) * self.lambda_raw())

    def readings(self, progress: float) -> Readings:
        return replace(super().readings(progress), attenuation=falling(self.attenuation, progress))
