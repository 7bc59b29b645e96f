"""A client trains with wrong labels."""

from __future__ import annotations

from numpy.random import Generator
from torch import Tensor

from accord.attacks.base import Attack, attacks


@attacks.register("flipped")
class Flipped(Attack):
    """Class c is called C − 1 − c, for all images of the client; its strength has no effect."""

    def counts(self, counts: Tensor) -> Tensor:
        return counts.flip(0)

    def labels(self, labels: Tensor, classes: int, rng: Generator, *, sums: bool) -> Tensor:  # noqa: ARG002
        return classes - 1 - labels
