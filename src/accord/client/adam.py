"""Adam for adapters; a step is bit for bit that of `torch.optim.Adam` (Kingma & Ba, 2015).

It is written out for the same reason as SGD: torch's optimisers load its compiler, which takes one
second in every worker.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, nn

FIRST, SECOND, TINY = 0.9, 0.999, 1e-8  # β₁, β₂, ε: the usual values


class Adam:
    """m ← β₁m + (1−β₁)g, v ← β₂v + (1−β₂)g², w ← w − η·m̂/(√v̂ + ε), with m̂ = m/(1−β₁ᵗ)."""

    def __init__(self, parameters: Iterable[nn.Parameter], lr: float) -> None:
        self.parameters, self.lr, self.steps = list(parameters), lr, 0
        self.first = [torch.zeros_like(p) for p in self.parameters]
        self.second = [torch.zeros_like(p) for p in self.parameters]

    def clear(self) -> None:
        for parameter in self.parameters:
            parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        self.steps += 1
        size = self.lr / (1 - FIRST**self.steps)
        root = (1 - SECOND**self.steps) ** 0.5
        for w, m, v in zip(self.parameters, self.first, self.second, strict=True):
            if w.grad is None:
                continue
            m.lerp_(w.grad, 1 - FIRST)
            v.mul_(SECOND).addcmul_(w.grad, w.grad, value=1 - SECOND)
            w.addcdiv_(m, (v.sqrt() / root).add_(TINY), value=-size)

    def state_dict(self) -> dict[str, Tensor]:
        moments = {"first": self.first, "second": self.second}
        found = {f"{kind}.{i}": t for kind, each in moments.items() for i, t in enumerate(each)}
        return {**found, "steps": torch.tensor(self.steps)}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        for kind, each in (("first", self.first), ("second", self.second)):
            for index, moment in enumerate(each):
                moment.copy_(tensors[f"{kind}.{index}"])
        self.steps = int(tensors["steps"])
