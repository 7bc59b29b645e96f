"""A weight that rises during training.

It is plan 1 of note 000 (docs/notes.md), which looked for a way without separate stages.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from accord.balance.base import Balance, Readings, Step, Weigher, Weights, balances


@balances.register("curriculum")
class Curriculum(Balance):
    """L = L_loc + w(p)·L_al with w(p) = w₀ + (w₁ − w₀)·p: the alignment weight rises linearly."""

    start_weight: float = Field(0.1, ge=0, description="w₀, the weight at p = 0")
    end_weight: float = Field(1.0, ge=0, description="w₁, the weight at p = 1")

    def start(self, label_counts: Tensor) -> Weigher:  # noqa: ARG002 - w is equal at every client
        return CurriculumWeigher(self)


class CurriculumWeigher(Weigher):
    def __init__(self, rule: Curriculum) -> None:
        super().__init__()
        self.rule = rule

    def weight(self, progress: float) -> float:
        first, last = self.rule.start_weight, self.rule.end_weight
        return first + (last - first) * progress

    def weigh(self, step: Step) -> Weights:
        return Weights(align=self.weight(step.progress))

    def readings(self, progress: float) -> Readings:
        return Readings(self.weight(progress))
