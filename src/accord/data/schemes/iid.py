"""A partition without label skew."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from accord.data.images import Indices
from accord.data.schemes.base import Counted, Pool, register


@register("iid")
class Iid(Counted):
    """All images are shuffled and distributed in equal parts."""

    varies = False

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        return np.array_split(rng.permutation(pool.size), self.clients)
