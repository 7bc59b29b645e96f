"""The interface of a shift: a change of all images of a client, with values of its own."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from accord.core.randomness import numpy_generator
from accord.core.registry import Registry
from accord.data.images import Bytes, Indices


@dataclass(frozen=True)
class Holder:
    """Who holds the images: client `index` of `clients`, in the study's trials with `seed`."""

    seed: int
    index: int
    clients: int

    def level(self, purpose: str) -> float:
        """The client's level in [−1, 1]; the levels of all clients are evenly spaced.

        Which client has which level is drawn from (seed, purpose). Independent draws would often
        give two clients nearly the same value, so that the skew would differ from seed to seed;
        with even levels a strength always means the same. A single client has level 1.
        """
        if self.clients == 1:
            return 1.0
        order = numpy_generator(self.seed, f"shift-{purpose}").permutation(self.clients)
        return 2 * int(order[self.index]) / (self.clients - 1) - 1

    def amount(self, purpose: str) -> float:
        """The client's level in [0, 1], for a change that has no opposite."""
        return (1 + self.level(purpose)) / 2


@dataclass(frozen=True)
class Shift(ABC):
    """A change of a client's images. `strength` is the study's value, larger than 0."""

    strength: float
    holder: Holder

    @property
    @abstractmethod
    def values(self) -> tuple[float, ...]:
        """The client's own values, which depend on its level."""

    @abstractmethod
    def apply(self, images: Bytes, rows: Indices) -> Bytes:
        """The changed uint8 images (N, H, W, C); `rows` are their positions in the dataset.

        An image is changed in the same way whatever other images there are.
        """


shifts: Registry[type[Shift]] = Registry("shift", "accord.data.shifts")
