"""Every client holds every image."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from accord.data.images import Indices
from accord.data.schemes.base import Counted, Pool, register


@register("copies")
class Copies(Counted):
    """Every client holds every image, which gives an ensemble of nets with different batches."""

    disjoint = False
    varies = False

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:  # noqa: ARG002
        return [np.arange(pool.size) for _ in range(self.clients)]
