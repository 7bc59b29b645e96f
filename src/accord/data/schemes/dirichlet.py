"""Label skew by Dirichlet proportions. Every image is given to exactly one client."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray
from pydantic import Field

from accord.data.images import Indices
from accord.data.schemes.base import Counted, Pool, register


class Skewed(Counted):
    """A scheme that draws proportions over the clients, of each class or of all images."""

    alpha: float = Field(
        0.5, gt=0, description="Dirichlet concentration; a small value gives a strong label skew"
    )

    @property
    def skew(self) -> float:
        return self.alpha

    @property
    def milder(self) -> tuple[str, str]:
        return f"alpha {self.alpha:g}", "a larger alpha"

    def proportions(self, rng: Generator) -> NDArray[np.float64]:
        """p ~ Dir(α, …, α) over the clients, for any α > 0.

        A Gamma(α) variate is Gamma(α+1)·U^(1/α). For a tiny α all variates underflow to 0. To avoid
        0/0, their logarithms are normalised relative to the largest.
        """
        alpha, clients = self.alpha, self.clients
        log_gamma = np.log(rng.standard_gamma(alpha + 1, clients))
        log_uniform = np.log1p(-rng.random(clients))
        top = np.argmax(min(alpha, 1.0) * log_gamma + log_uniform / max(alpha, 1.0))
        with np.errstate(over="ignore"):  # an infinite distance gives a weight of 0
            weights = np.exp(log_gamma - log_gamma[top] + (log_uniform - log_uniform[top]) / alpha)
        proportions: NDArray[np.float64] = weights / weights.sum()
        return proportions


@register("dirichlet")
class Dirichlet(Skewed):
    """Per class, proportions over clients ~ Dir(α); its shuffled images are distributed once."""

    def draw(self, pool: Pool, rng: Generator) -> list[Indices]:
        owner = np.empty(pool.size, dtype=np.int64)
        for members in pool.classes:
            # Cuts at rounded cumulative shares use every image, for all values of the shares.
            cuts = np.rint(np.cumsum(self.proportions(rng))[:-1] * len(members))
            ranks = np.arange(len(members))
            owner[rng.permutation(members)] = np.searchsorted(cuts, ranks, side="right")
        return [np.flatnonzero(owner == client) for client in range(self.clients)]
