"""A small adapter that starts as the exact identity."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accord.core.mergenet import MergeNetConfig
from accord.nets.adapters.base import Adapter, Size, adapters, attend, rms


@adapters.register("bottleneck")
class Bottleneck(Adapter):
    """X̂ = X + rms(X)·O(H), where H are the rows of X, projected to width d, after L layers.

    Each layer is H ← H + Attention(H, K) and then H ← H + FFN(H), where K are the projected rows of
    Y. O starts at 0, so that X̂ = X exactly. X and Y are divided by their rms before they are
    projected, so that the result does not depend on the scale of the weights.
    """

    def __init__(self, student: Size, teacher: Size, config: MergeNetConfig) -> None:
        nn.Module.__init__(self)
        width = config.d_attention
        self.of_student = nn.Linear(student[1], width)
        self.of_teacher = nn.Linear(teacher[1], width)
        self.layers = nn.ModuleList(CrossLayer(width, config.heads) for _ in range(config.layers))
        self.out = nn.Linear(width, student[1])

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        nn.init.zeros_(self.out.weight)
        nn.init.zeros_(self.out.bias)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        scale = rms(x)
        rows, known = self.of_student(x / scale), self.of_teacher(y / rms(y))
        for layer in self.layers:
            rows = layer(rows, known)
        change: Tensor = self.out(rows)
        return x + scale * change


class CrossLayer(nn.Module):
    """Attention of the student's rows to the teacher's rows, and a small perceptron."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm, self.norm_known, self.norm_out = (nn.LayerNorm(width) for _ in range(3))
        self.query, self.value, self.out = (nn.Linear(width, width) for _ in range(3))
        self.key = nn.Linear(width, width, bias=False)  # a softmax would ignore its bias
        self.up, self.down = nn.Linear(width, 2 * width), nn.Linear(2 * width, width)

    def forward(self, rows: Tensor, known: Tensor) -> Tensor:
        asked, known = self.norm(rows), self.norm_known(known)
        seen = attend(self.query(asked), self.key(known), self.value(known), self.heads)
        rows = rows + self.out(seen)
        hidden = nn.functional.gelu(self.up(self.norm_out(rows)))
        found: Tensor = rows + self.down(hidden)
        return found
