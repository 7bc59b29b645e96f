"""Features with labels, and their sums straight from the definition, for tests of the closed form.

`sums_by_hand` uses NumPy alone and looks at one class after the other.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from accord.closed_form.sums import Sums
from accord.core.randomness import numpy_generator
from tests_support import digits

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


class Data(NamedTuple):
    """Features (N, d) and labels (N) of some images."""

    features: Floats
    labels: Ints

    def take(self, rows: Ints | NDArray[np.bool_]) -> Data:
        return Data(self.features[rows], self.labels[rows])


def made_up(seed: int, rows: int, width: int, classes: int) -> Data:
    """Classes apart from each other; features of unlike spreads and offsets, some tied together."""
    draws = numpy_generator(seed, "features", rows, width)
    labels = draws.integers(classes, size=rows)
    centres = draws.normal(size=(classes, width))
    mixed = (draws.normal(size=(rows, width)) + centres[labels]) @ draws.normal(size=(width, width))
    spread, offset = 10 ** draws.uniform(-2, 1, width), draws.normal(0, 5, width)
    return Data(mixed * spread + offset, labels)


def pixels(rows: int) -> Data:
    """Real digits, every pixel a feature from 0 to 1; some pixels are 0 in all of them."""
    images, labels = digits()
    return Data(images[:rows].reshape(rows, -1) / 255.0, labels[:rows])


def dealt(data: Data, clients: int, seed: int) -> list[Data]:
    """Every image to one of the clients, some of which may get none."""
    owner = numpy_generator(seed, "owner").integers(clients, size=len(data.labels))
    return [data.take(owner == client) for client in range(clients)]


def sums_by_hand(data: Data, classes: int) -> Sums:
    x, y = data
    counts = np.array([(y == label).sum() for label in range(classes)], dtype=np.int64)
    sums = np.stack([x[y == label].sum(axis=0) for label in range(classes)])
    scatter = np.zeros((x.shape[1], x.shape[1]))
    if len(x):
        scatter = len(x) * np.atleast_2d(np.cov(x, rowvar=False, bias=True))
    return Sums(torch.from_numpy(counts), torch.from_numpy(sums), torch.from_numpy(scatter))


def assert_same_sums(found: Sums, expected: Sums, within: float = 1e-10) -> None:
    """Each number within a share of the largest of its kind."""
    assert found.counts.tolist() == expected.counts.tolist()
    for one, other in ((found.sums, expected.sums), (found.scatter, expected.scatter)):
        assert one.dtype == other.dtype == torch.float64
        assert furthest(one, other) <= within * max(float(other.abs().max()), 1e-300)


def furthest(one: Tensor, other: Tensor) -> float:
    return float((one - other).abs().max())
