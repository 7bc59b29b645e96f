"""Where a client's features should lie: the bank, seen through the client's own mix of classes.

A bank holds every class alike, a client does not. Compared as they are, the two differ by their
labels alone, and a client would be punished for its skew. So the rows of the bank weigh by class,
as much as the class does in the client's batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from accord.objective.negatives import Rows

CHUNK = 1024  # rows at a time
OCTAVES = 5  # kernels of widths ¼, ½, 1, 2 and 4 times the reference's own
NARROW = 1e-3  # the least width, for a bank whose rows coincide


@dataclass(frozen=True)
class Reference:
    """The bank's rows b with weights w_b = q_c / n_c, c the row's class, summing to 1.

    q is the share of each class in the client's batches, over the classes that the bank has, and
    n_c the number of the bank's rows of class c. A client with none of these classes has w = 0.
    """

    rows: Rows
    shares: Tensor  # (C): of each class in the client's batches

    @cached_property
    def known(self) -> Tensor:
        """(C): the classes that the bank has."""
        return self._counts > 0

    @cached_property
    def weights(self) -> Tensor:
        q = self.shares * self.known
        q = q / q.sum().clamp(min=1e-12)
        return (q / self._counts.clamp(min=1))[self.rows.labels]

    def row_weights(self, y: Tensor) -> Tensor:
        """Weights of a batch's rows: equal, 0 for classes that the bank lacks."""
        counted = self.known[y].to(self.rows.features.dtype)
        return counted / counted.sum().clamp(min=1)

    @cached_property
    def covariance(self) -> Tensor:
        """(d, d): of the bank, weighted."""
        return covariance(self.rows.features, self.weights)

    @cached_property
    def spread(self) -> Tensor:
        """The mean squared distance of two rows, Σ v_a v_b ‖a − b‖² = 2(Σ v‖b‖² − ‖Σ v b‖²).

        v weighs all classes of the bank alike, whatever the client holds: a teacher crowds the
        images of one class together, and by their width a client of that class would be too far
        away to be drawn.
        """
        b = self.rows.features
        v = (1 / self._counts.clamp(min=1) / self.known.sum())[self.rows.labels]
        found = 2 * ((v * b.square().sum(dim=1)).sum() - (v @ b).square().sum())
        return found.clamp(min=NARROW)

    @cached_property
    def self_similarity(self) -> Tensor:
        """Σ_ab w_a w_b k(a, b): the part of MMD² that no client changes."""
        total = self.weights.new_zeros(())
        chunks = list(self.chunks())
        for index, (a, w_a) in enumerate(chunks):
            total += w_a @ kernel(a, a, self.spread) @ w_a
            for b, w_b in chunks[index + 1 :]:
                total += 2 * (w_a @ kernel(a, b, self.spread) @ w_b)
        return total

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(features, weights), some rows at a time; rows without weight are left out."""
        b, w = self._counted
        for start in range(0, len(w), CHUNK):
            yield b[start : start + CHUNK], w[start : start + CHUNK]

    @cached_property
    def _counted(self) -> tuple[Tensor, Tensor]:
        counted = self.weights > 0
        return self.rows.features[counted], self.weights[counted]

    @cached_property
    def _counts(self) -> Tensor:
        found = torch.bincount(self.rows.labels, minlength=len(self.shares))
        return found.to(self.rows.features.dtype)


def kernel(a: Tensor, b: Tensor, spread: Tensor) -> Tensor:
    """k(a, b) = mean over m = −2…2 of exp(−‖a − b‖² / (2ᵐ·s)): Gaussians around width s."""
    distance = (a.square().sum(1)[:, None] + b.square().sum(1)[None, :] - 2 * a @ b.T).clamp(min=0)
    wide = (-distance / (4 * spread)).exp()
    total = wide
    for _ in range(OCTAVES - 1):
        wide = wide.square()  # half the width
        total = total + wide
    return total / OCTAVES


def covariance(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i (x_i − μ)(x_i − μ)ᵀ with μ = Σ_i w_i x_i."""
    centred = rows - weights @ rows
    return centred.T @ (weights[:, None] * centred)
