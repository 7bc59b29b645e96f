"""A client sends a change that is many times as large as the one that it learnt."""

from __future__ import annotations

from typing import ClassVar

import torch

from accord.attacks.base import Attack, Sums, Tensors, attacks


@attacks.register("scaled")
class Scaled(Attack):
    """W_0 + s·(W − W_0) for a net; the sums of features that are s times as large, s·φ.

    This is the boosting of Bagdasaryan et al. (2020, arXiv:1807.00459): in a mean with equal
    weights, s = K replaces the whole model by this client's own.
    """

    default: ClassVar[float] = 100.0

    def weights(self, trained: Tensors, start: Tensors, draws: torch.Generator) -> Tensors:  # noqa: ARG002
        return {n: start[n] + self.strength * (t - start[n]) for n, t in trained.items()}

    def sums(self, sums: Sums, draws: torch.Generator) -> Sums:  # noqa: ARG002
        counts, totals, scatter = sums
        return counts, self.strength * totals, self.strength**2 * scatter
