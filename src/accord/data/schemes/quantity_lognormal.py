"""Quantity skew by log-normal sizes: clients have different sizes and no label skew."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from pydantic import Field

from accord.data.images import Indices
from accord.data.schemes.base import Counted, Pool, register
from accord.data.schemes.sized import cut_by_shares


@register("quantity-lognormal")
class QuantityLogNormal(Counted):
    """Client k has a share ∝ exp(σ·g_k) of all shuffled images, with g_k ~ N(0, 1)."""

    sigma: float = Field(
        1.0,
        ge=0,
        le=100,
        description="standard deviation of the logarithm of a client's size; 0 gives equal sizes",
    )

    @property
    def milder(self) -> tuple[str, str]:
        return f"sigma {self.sigma:g}", "a smaller sigma"

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        logs = self.sigma * rng.standard_normal(self.clients)
        weights = np.exp(logs - logs.max())  # relative to the largest, so that none overflows
        return cut_by_shares(pool.size, weights / weights.sum(), rng)
