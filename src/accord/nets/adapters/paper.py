"""The adapter of the MergeNet paper: attention between rows and columns of both layers."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.core.mergenet import MergeNetConfig
from accord.nets.adapters.base import TINY, Adapter, Size, adapters, attend

NARROWEST = 128  # the least width of an attention, over all heads
WARM_UP = 15  # power iterations on the initial weights, the number that PyTorch uses


@adapters.register("paper")
class Paper(Adapter):
    """L layers of M = ¼ Σ of four attentions (X←Y, X←Yᵀ, Xᵀ←Y, Xᵀ←Yᵀ), X ← LN(M + D·GELU(U·M)).

    Each attention has h heads, a residual and a LayerNorm, and U and D are spectrally normalised.
    As in the reference code, an attention of queries with m columns and keys with n columns has the
    total width max(⌊(m + n)/2⌋, 128), rounded down to a multiple of h; `d_attention` is not used.
    The result is normalised row by row and is not the identity at the start, so this adapter needs
    batch norms that are recalibrated, or group norms. Dropout is left out.
    """

    def __init__(self, student: Size, teacher: Size, config: MergeNetConfig) -> None:
        nn.Module.__init__(self)
        self.layers = nn.ModuleList(
            PaperLayer(student, teacher, config.heads) for _ in range(config.layers)
        )

    def initialise(self, generator: torch.Generator) -> None:
        super().initialise(generator)
        for part in self.modules():
            if isinstance(part, SpectralLinear):
                part.warm_up(generator)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x, y)
        return x


class PaperLayer(nn.Module):
    def __init__(self, student: Size, teacher: Size, heads: int) -> None:
        super().__init__()
        (rows, columns), (other_rows, other_columns) = student, teacher
        self.rows_rows = CrossAttention(columns, other_columns, heads)
        self.rows_columns = CrossAttention(columns, other_rows, heads)
        self.columns_rows = CrossAttention(rows, other_columns, heads)
        self.columns_columns = CrossAttention(rows, other_rows, heads)
        self.up = SpectralLinear(columns, 2 * columns)
        self.down = SpectralLinear(2 * columns, columns)
        self.norm = nn.LayerNorm(columns)

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        seen = self.rows_rows(x, y) + self.rows_columns(x, y.T)
        seen = seen + self.columns_rows(x.T, y).T + self.columns_columns(x.T, y.T).T
        mean = seen / 4
        found: Tensor = self.norm(mean + self.down(F.gelu(self.up(mean))))
        return found


class CrossAttention(nn.Module):
    """LN(q + Attention(q, k)): the rows q look at the rows k."""

    def __init__(self, width: int, known: int, heads: int) -> None:
        super().__init__()
        inner = max((width + known) // 2, NARROWEST) // heads * heads
        if not inner:
            raise AccordError(
                f"mergenet.heads: expected at most {max((width + known) // 2, NARROWEST)} for the "
                f"adapter paper and layers of {width} and {known} columns; found {heads}."
            )
        self.heads = heads
        self.query, self.out = nn.Linear(width, inner), nn.Linear(inner, width)
        self.key = nn.Linear(known, inner, bias=False)  # a softmax would ignore its bias
        self.value = nn.Linear(known, inner)
        self.norm = nn.LayerNorm(width)

    def forward(self, rows: Tensor, known: Tensor) -> Tensor:
        seen = attend(self.query(rows), self.key(known), self.value(known), self.heads)
        found: Tensor = self.norm(rows + self.out(seen))
        return found


class SpectralLinear(nn.Linear):
    """A linear map with the weight W/σ, where σ = uᵀWv is W's largest singular value.

    u and v are improved by one power iteration in every forward pass in training mode (Miyato et
    al., 2018, arXiv:1802.05957).
    """

    u: Tensor
    v: Tensor

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__(inputs, outputs)
        self.register_buffer("u", torch.empty(outputs))
        self.register_buffer("v", torch.empty(inputs))

    def warm_up(self, generator: torch.Generator) -> None:
        for vector in (self.u, self.v):
            vector.copy_(torch.randn(vector.shape, generator=generator))
        for _ in range(WARM_UP):
            self.iterate()

    @torch.no_grad()
    def iterate(self) -> None:
        # New tensors, because the graph of an earlier forward pass may still need the old ones.
        self.u = F.normalize(self.weight @ self.v, dim=0, eps=TINY)
        self.v = F.normalize(self.weight.T @ self.u, dim=0, eps=TINY)

    def forward(self, rows: Tensor) -> Tensor:
        if self.training:
            self.iterate()
        sigma = torch.dot(self.u, self.weight @ self.v)
        return F.linear(rows, self.weight / sigma, self.bias)
