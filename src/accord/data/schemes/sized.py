"""Clients of given relative sizes, each with a random sample of the images."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from accord.data.images import Indices


def cut_by_shares(size: int, shares: NDArray[np.float64], rng: Generator) -> list[Indices]:
    """All positions 0…size−1, shuffled and cut into parts of about `shares`·size each.

    The cuts are at rounded cumulative shares, so that every image is used for all values of the
    shares. Each part is a random sample: no client has another expected mix of classes.
    """
    cuts = np.rint(np.cumsum(shares)[:-1] * size).astype(np.int64)
    return np.split(rng.permutation(size), cuts)
