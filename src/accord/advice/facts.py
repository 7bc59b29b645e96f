"""The facts about a federation that decide which recipe fits it, and the user's limits."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.core.text import printable


@dataclass(frozen=True)
class Limits:
    """What the user allows and needs. None means: no limit, or as the study says."""

    exchanges: int | None = None  # messages of each client to the server
    megabytes: float | None = None  # all uploads of one client together
    private: bool = False  # no upload may show the features of single images
    one_net: bool = False  # the model must be one ordinary net
    unlabelled: bool = False  # the server's public images have no labels
    gpu: bool | None = None  # whether clients have a GPU; None: as this machine

    def __post_init__(self) -> None:
        if self.exchanges is not None and self.exchanges < 1:
            raise AccordError(
                f"--exchanges: expected 1 or more, the number of uploads of each client; found "
                f"{self.exchanges}."
            )
        if self.megabytes is not None and not (0 < self.megabytes < math.inf):
            raise AccordError(
                f"--megabytes: expected a number above 0, the megabytes that each client may "
                f"upload in all; found {self.megabytes:g}."
            )


@dataclass(frozen=True, eq=False)  # == of arrays is not one truth value
class Facts:
    """A federation: `counts` (clients, classes) are the training images that each client holds."""

    counts: NDArray[np.int64]
    clients: tuple[str, ...]
    classes: tuple[str, ...]
    height: int
    width: int
    channels: int
    public: int = 0  # images of the server
    labelled: bool = True  # whether these have labels
    validation: int = 0  # labelled images of the server on which nobody trains
    exchanges: int = 1
    megabytes: float | None = None
    private: bool = False
    one_net: bool = False
    gpu: bool = False
    simulated: bool = False  # whether the clients are drawn, and are no real sites
    backbone: str | None = None  # the net that the user has chosen

    @cached_property
    def sizes(self) -> NDArray[np.int64]:
        """n_k, the images of each client."""
        found: NDArray[np.int64] = self.counts.sum(axis=1)
        return found

    @property
    def images(self) -> int:
        return int(self.sizes.sum())

    @property
    def smallest(self) -> int:
        return int(self.sizes.min())

    @property
    def median(self) -> float:
        return float(np.median(self.sizes))

    @property
    def side(self) -> int:
        return max(self.height, self.width)

    @property
    def skew(self) -> float:
        """Σ_k n_k/n · ½Σ_c |p_kc − p_c|: 0 for equal labels, near 1 for a class per client."""
        shares = self.counts / self.sizes[:, None]
        overall = self.counts.sum(axis=0) / self.images
        distances = 0.5 * np.abs(shares - overall).sum(axis=1)
        return float((self.sizes / self.images) @ distances)

    @property
    def single_class(self) -> int:
        """The number of clients that hold images of one class only."""
        return int(((self.counts > 0).sum(axis=1) == 1).sum())

    def at_one_client(self) -> list[str]:
        """The classes that only one of several clients holds."""
        if len(self.clients) < 2:
            return []
        return self._classes((self.counts > 0).sum(axis=0) == 1)

    def missing(self) -> list[str]:
        """The classes that no client holds."""
        return self._classes(self.counts.sum(axis=0) == 0)

    def scarce(self, fewest: int) -> list[tuple[str, str, int]]:
        """(client, class, images) wherever a client holds some, but fewer than `fewest`."""
        found = np.argwhere((self.counts > 0) & (self.counts < fewest))
        found = found[np.argsort(self.counts[found[:, 0], found[:, 1]], kind="stable")]
        return [
            (printable(self.clients[k]), printable(self.classes[c]), int(self.counts[k, c]))
            for k, c in found
        ]

    def below(self, images: int) -> int:
        """The number of clients with fewer images."""
        return int((self.sizes < images).sum())

    def to_json(self) -> dict[str, Any]:
        """All facts as numbers, without the table of counts."""
        derived = ("images", "smallest", "median", "skew", "single_class")
        given = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "counts"}
        return {**given, **{name: getattr(self, name) for name in derived}}

    def _classes(self, chosen: NDArray[np.bool_]) -> list[str]:
        return [printable(self.classes[c]) for c in np.flatnonzero(chosen)]
