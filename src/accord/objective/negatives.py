"""A softmax over rows from outside the batch that never holds all similarities in memory at once.

A batch of 1,024 rows and a bank of 65,536 rows have 67 million similarities, and autograd would
keep several copies of them. This module computes them chunk by chunk, and again in the backward
pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

CHUNK = 4096  # number of a bank's rows in one chunk


@dataclass(frozen=True)
class Rows:
    """Labelled unit features for a contrastive loss. They are constants without a gradient.

    If `own_class` is set, they also repel images of their own class.
    """

    features: Tensor
    labels: Tensor
    own_class: bool = False

    def __len__(self) -> int:
        return len(self.labels)

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        for start in range(0, len(self), CHUNK):
            yield self.features[start : start + CHUNK], self.labels[start : start + CHUNK]

    def negative(self, y: Tensor, labels: Tensor) -> Tensor:
        """(anchors, rows): whether a row with these `labels` has another class than the anchor."""
        return y[:, None] != labels[None, :]


@dataclass(frozen=True)
class Pull:
    """The weight w of each outside row: log w = `bias`[label] + `hardness`·cosine."""

    temperature: float
    hardness: float
    bias: Tensor  # one value per class

    def logits(self, z: Tensor, features: Tensor, labels: Tensor) -> Tensor:
        """cosine/τ + log w of every (anchor, row)."""
        return z @ features.T * (1 / self.temperature + self.hardness) + self.bias[labels]


def outside(z: Tensor, y: Tensor, rows: Rows, pull: Pull) -> Tensor:
    """log Σ_b w_ib·exp(z_i·b/τ) of every anchor i. No gradient flows through the weights w."""
    total: Tensor = _Outside.apply(z, y, rows, pull)  # type: ignore[no-untyped-call]
    return total


class _Outside(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, y: Tensor, rows: Rows, pull: Pull) -> Tensor:
        total = z.new_full((len(z),), -torch.inf)
        for features, labels in rows.chunks():
            logits = _counted(pull.logits(z, features, labels), rows, y, labels)
            total = torch.logaddexp(total, logits.logsumexp(dim=1))
        ctx.save_for_backward(z, y, total)
        ctx.rows, ctx.pull = rows, pull
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:
        z, y, total = ctx.saved_tensors
        rows, pull = ctx.rows, ctx.pull
        # An anchor without any negatives has total −∞ and a gradient of 0.
        finite = total.masked_fill(total.isinf(), 0)
        slope = torch.zeros_like(z)
        for features, labels in rows.chunks():
            logits = _counted(pull.logits(z, features, labels), rows, y, labels)
            slope += (logits - finite[:, None]).exp() @ features
        steep = gradients[0].masked_fill(total.isinf(), 0) / pull.temperature
        return slope * steep[:, None], None, None, None


def _counted(logits: Tensor, rows: Rows, y: Tensor, labels: Tensor) -> Tensor:
    """−∞ where a row does not repel an anchor."""
    return logits if rows.own_class else logits.masked_fill(~rows.negative(y, labels), -torch.inf)


def hardness_of(z: Tensor, y: Tensor, rows: Rows, hardness: float) -> tuple[Tensor, Tensor]:
    """(log Σ exp(β·cosine), count) over the rows that repel each anchor; no gradient."""
    total, count = z.new_full((len(z),), -torch.inf), z.new_zeros(len(z))
    with torch.no_grad():
        for features, labels in rows.chunks():
            weights = _counted(hardness * (z @ features.T), rows, y, labels)
            total = torch.logaddexp(total, weights.logsumexp(dim=1))
            count += len(labels) if rows.own_class else rows.negative(y, labels).sum(dim=1)
    return total, count


def hardest(z: Tensor, y: Tensor, sources: list[Rows], count: int) -> Tensor:
    """The `count` rows of other classes most similar to each anchor, without a gradient.

    The shape is (anchors, count, d), with the most similar rows first. If an anchor has fewer such
    rows, the rest of its rows are zero.
    """
    best = z.new_full((len(z), count), -torch.inf)
    rows = z.new_zeros(len(z), count, z.shape[1])
    with torch.no_grad():
        for source in sources:
            for features, labels in source.chunks():
                cosine = z @ features.T
                cosine = cosine.masked_fill(y[:, None] == labels[None, :], -torch.inf)
                values, index = cosine.topk(min(count, len(labels)), dim=1)
                both = torch.cat([best, values], dim=1)
                best, kept = both.topk(count, dim=1)
                known = torch.cat([rows, features[index]], dim=1)
                rows = known.gather(1, kept[:, :, None].expand(-1, -1, z.shape[1]))
    return rows * best.isfinite()[:, :, None]
