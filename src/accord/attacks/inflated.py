"""A client says that it has many times as many images as it has."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from accord.attacks.base import Attack, Sums, attacks


@attacks.register("inflated")
class Inflated(Attack):
    """s·n_c images of each class, rounded. All sums are those of every image counted s times.

    The net is an honest one. Rules that weigh clients by their counts give it s times the weight.
    """

    default: ClassVar[float] = 10.0

    def counts(self, counts: Tensor) -> Tensor:
        said = (self.strength * counts.double()).round().long()
        return torch.where(counts > 0, said.clamp(min=1), counts)

    def sums(self, sums: Sums, draws: torch.Generator) -> Sums:  # noqa: ARG002
        counts, totals, scatter = sums
        said = self.counts(counts)
        # Each class keeps its mean exactly, also if its count was rounded.
        share = said / counts.clamp(min=1)
        return counts, share[:, None] * totals, int(said.sum()) / int(counts.sum()) * scatter
