"""The bank weighted by a client's class proportions: the target distribution of its features.

A bank holds all classes equally, but a client has label skew. Without weights, the difference in
labels alone would separate the two distributions, and the loss would penalise the client for its
skew. Therefore each class has the same total weight in the bank as in the client's batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from accord.objective.negatives import Rows

CHUNK = 1024  # number of rows in one chunk
OCTAVES = 5  # kernels of widths ¼, ½, 1, 2 and 4 times the mean squared distance of the bank
NARROW = 1e-3  # the smallest width, for a bank with identical rows


@dataclass(frozen=True)
class Reference:
    """The bank's rows b with weights w_b = q_c / n_c that sum to 1; c is the class of the row.

    q_c is the share of class c in the client's batches, over the classes that the bank has. n_c is
    the number of the bank's rows of class c. A client with none of these classes has w = 0.
    """

    rows: Rows
    shares: Tensor  # (C): the share of each class in the client's batches

    @cached_property
    def known(self) -> Tensor:
        """(C): whether the bank has each class."""
        return self._counts > 0

    @cached_property
    def weights(self) -> Tensor:
        q = self.shares * self.known
        q = q / q.sum().clamp(min=1e-12)
        return (q / self._counts.clamp(min=1))[self.rows.labels]

    def row_weights(self, y: Tensor) -> Tensor:
        """The weights of a batch's rows: 0 for classes that the bank lacks, otherwise equal."""
        counted = self.known[y].to(self.rows.features.dtype)
        return counted / counted.sum().clamp(min=1)

    @cached_property
    def covariance(self) -> Tensor:
        """(d, d): the weighted covariance of the bank."""
        return covariance(self.rows.features, self.weights)

    @cached_property
    def spread(self) -> Tensor:
        """The mean squared distance of two rows, Σ v_a v_b ‖a − b‖² = 2(Σ v‖b‖² − ‖Σ v b‖²).

        v gives all classes of the bank the same weight, independent of the client's classes. A
        teacher maps the images of one class close together. If a client of one class used only the
        distances within that class, the kernels would be too narrow and its gradient would vanish.
        """
        b = self.rows.features
        v = (1 / self._counts.clamp(min=1) / self.known.sum())[self.rows.labels]
        found = 2 * ((v * b.square().sum(dim=1)).sum() - (v @ b).square().sum())
        return found.clamp(min=NARROW)

    @cached_property
    def self_similarity(self) -> Tensor:
        """Σ_ab w_a w_b k(a, b): the part of MMD² that does not depend on the client's features."""
        total = self.weights.new_zeros(())
        chunks = list(self.chunks())
        for index, (a, w_a) in enumerate(chunks):
            total += w_a @ kernel(a, a, self.spread) @ w_a
            for b, w_b in chunks[index + 1 :]:
                total += 2 * (w_a @ kernel(a, b, self.spread) @ w_b)
        return total

    def chunks(self) -> Iterator[tuple[Tensor, Tensor]]:
        """(features, weights) in chunks of rows. Rows with weight 0 are left out."""
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
    """k(a, b) = mean over m = −2…2 of exp(−‖a − b‖² / (2ᵐ·s)): Gaussians of widths around s."""
    distance = (a.square().sum(1)[:, None] + b.square().sum(1)[None, :] - 2 * a @ b.T).clamp(min=0)
    wide = (-distance / (4 * spread)).exp()
    total = wide
    for _ in range(OCTAVES - 1):
        wide = wide.square()  # the square has half the width
        total = total + wide
    return total / OCTAVES


def covariance(rows: Tensor, weights: Tensor) -> Tensor:
    """Σ_i w_i (x_i − μ)(x_i − μ)ᵀ with μ = Σ_i w_i x_i."""
    centred = rows - weights @ rows
    return centred.T @ (weights[:, None] * centred)
