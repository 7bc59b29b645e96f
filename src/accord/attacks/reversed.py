"""A client sends the opposite of the change that it learnt."""

from __future__ import annotations

from typing import ClassVar

import torch

from accord.attacks.base import Attack, Sums, Tensors, attacks


@attacks.register("reversed")
class Reversed(Attack):
    """W_0 − s·(W − W_0). For sums, the class sums lie on the other side of the client's mean."""

    default: ClassVar[float] = 1.0

    def weights(self, trained: Tensors, start: Tensors, draws: torch.Generator) -> Tensors:  # noqa: ARG002
        return {n: start[n] - self.strength * (t - start[n]) for n, t in trained.items()}

    def sums(self, sums: Sums, draws: torch.Generator) -> Sums:  # noqa: ARG002
        counts, totals, scatter = sums
        mean = totals.sum(dim=0) / counts.sum()
        # Mirrored about the client's mean, the classes lie as far apart as before.
        return counts, 2 * counts[:, None] * mean - totals, scatter
