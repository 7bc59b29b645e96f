"""A client sends the upload of another client under its own name."""

from __future__ import annotations

from typing import ClassVar

import torch

from accord.attacks.base import Attack, Sums, Tensors, attacks


@attacks.register("copied")
class Copied(Attack):
    """The same tensors as those of another client, which was drawn at random."""

    copies: ClassVar[bool] = True


@attacks.register("near-copied")
class NearCopied(Copied):
    """A copy with a little noise: every number x of a tensor becomes x + s·d·N(0, 1).

    d is the deviation of the tensor's numbers. For sums, only those of a class are changed, by
    s times their own size.
    """

    default: ClassVar[float] = 1e-3

    def weights(self, trained: Tensors, start: Tensors, draws: torch.Generator) -> Tensors:  # noqa: ARG002
        found = {}
        for name, tensor in trained.items():
            noise = torch.randn(tensor.shape, generator=draws)
            found[name] = tensor + self.strength * tensor.std(correction=0) * noise
        return found

    def sums(self, sums: Sums, draws: torch.Generator) -> Sums:
        counts, totals, scatter = sums
        noise = torch.randn(totals.shape, generator=draws, dtype=totals.dtype)
        return counts, totals * (1 + self.strength * noise), scatter
