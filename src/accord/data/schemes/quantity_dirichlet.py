"""Quantity skew by Dirichlet proportions: clients have different sizes and no label skew."""

from __future__ import annotations

from numpy.random import Generator
from pydantic import Field

from accord.data.images import Indices
from accord.data.schemes.base import Pool, register
from accord.data.schemes.dirichlet import Skewed
from accord.data.schemes.sized import cut_by_shares


@register("quantity-dirichlet")
class QuantityDirichlet(Skewed):
    """Client k has a share q_k of all shuffled images, q ~ Dir(α, …, α) over the clients."""

    alpha: float = Field(
        0.5,
        gt=0,
        description="Dirichlet concentration; a small value gives very different client sizes",
    )

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        return cut_by_shares(pool.size, self.proportions(rng), rng)
