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

    d is the deviation of the tensor's numbers. For sums, the mean of each class c moves towards
    the mean of all images by a share s·u_c, u_c from U(0, 1), so that the scatter can still be that
    of images.
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
        middle = counts[:, None] * totals.sum(dim=0) / counts.sum().clamp(min=1)
        shares = torch.rand(len(totals), 1, generator=draws, dtype=totals.dtype)
        return counts, totals + self.strength * shares * (middle - totals), scatter
