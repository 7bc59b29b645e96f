"""A weight that grows as the client's own classification loss falls.

It is plan 2 of note 000 (docs/notes.md), which looked for a way without separate stages.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import Tensor

from accord.balance.base import Balance, Readings, Step, Weigher, Weights, balances


@balances.register("confidence")
class Confidence(Balance):
    """L = L_loc + w·L_al, w = w₁·(1 − CE_ema/CE_first), clipped to [w₀, w₁].

    CE_first is the loss of the watched term at the first step, and CE_ema is its moving average
    since then. At the start of training w is w₀, and it approaches w₁ as the client's own
    classification loss approaches 0.
    """

    lowest: float = Field(0.1, ge=0, description="w₀, the smallest weight")
    highest: float = Field(1.0, ge=0, description="w₁, the largest weight")
    memory: float = Field(0.9, ge=0, lt=1, description="m of CE_ema ← m·CE_ema + (1 − m)·CE")
    watch: str = Field("cross-entropy", description="the local term whose loss is used as CE")

    @model_validator(mode="after")
    def _ordered(self) -> Confidence:
        if self.lowest > self.highest:
            raise ValueError(
                f"lowest should not exceed highest; found {self.lowest} and {self.highest}"
            )
        return self

    def start(self, label_counts: Tensor) -> Weigher:  # noqa: ARG002 - w depends on the loss alone
        return ConfidenceWeigher(self)

    def watched(self) -> str | None:
        return self.watch


class ConfidenceWeigher(Weigher):
    first: Tensor
    average: Tensor

    def __init__(self, rule: Confidence) -> None:
        super().__init__()
        self.rule = rule
        self.register_buffer("first", torch.tensor(math.nan))  # NaN: no loss seen yet
        self.register_buffer("average", torch.tensor(math.nan))

    def weight(self) -> Tensor:
        share = torch.nan_to_num(1 - self.average / self.first, nan=0.0)
        return (self.rule.highest * share).clamp(self.rule.lowest, self.rule.highest)

    def weigh(self, step: Step) -> Weights:
        loss = step.terms[self.rule.watch]
        unseen = self.first.isnan()
        kept = self.rule.memory * self.average + (1 - self.rule.memory) * loss
        self.average = torch.where(unseen, loss, kept)
        self.first = torch.where(unseen, loss, self.first)
        return Weights(align=self.weight())

    def readings(self, progress: float) -> Readings:  # noqa: ARG002 - w depends on the loss alone
        return Readings(self.weight().item())
