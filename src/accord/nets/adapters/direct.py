"""The control without a teacher: the layer itself is trained."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accord.core.mergenet import MergeNetConfig
from accord.nets.adapters.base import Adapter, Size, adapters


@adapters.register("direct")
class Direct(Adapter):
    """X̂ = X + Δ with a free Δ, which starts at 0 in every fusion: fine-tuning of the layer."""

    uses_teacher = False
    fresh = True

    def __init__(self, student: Size, teacher: Size, config: MergeNetConfig) -> None:  # noqa: ARG002
        nn.Module.__init__(self)
        self.change = nn.Parameter(torch.empty(student))

    def initialise(self, generator: torch.Generator) -> None:  # noqa: ARG002
        nn.init.zeros_(self.change)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:  # noqa: ARG002
        return x + self.change
