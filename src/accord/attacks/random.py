"""A client sends a net that it never trained, or the sums of random labels."""

from __future__ import annotations

from typing import ClassVar

import torch
from numpy.random import Generator
from torch import Tensor

from accord.attacks.base import Attack, Tensors, attacks


@attacks.register("random")
class Random(Attack):
    """Every tensor is drawn from N(m, (s·d)²), with the mean m and deviation d of the trained one.

    A client that sends sums gives its own labels to its images in a random order. Norms and counts
    stay as they were, so that only the content of the message is wrong.
    """

    default: ClassVar[float] = 1.0

    def labels(self, labels: Tensor, classes: int, rng: Generator, *, sums: bool) -> Tensor:  # noqa: ARG002
        return labels[torch.from_numpy(rng.permutation(len(labels)))] if sums else labels

    def weights(self, trained: Tensors, start: Tensors, draws: torch.Generator) -> Tensors:  # noqa: ARG002
        found = {}
        for name, tensor in trained.items():
            noise = torch.randn(tensor.shape, generator=draws)
            spread = tensor.std(correction=0)
            found[name] = tensor.mean() + self.strength * spread * noise
        return found
