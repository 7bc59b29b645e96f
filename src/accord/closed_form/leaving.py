"""What the ridge regression would be without each client, from the total and one client's sums.

The total without a client is the total minus the client's sums, so that the clients are read once,
one at a time. Each needs one Cholesky factor; λ is chosen once, for all clients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.closed_form.ridge import NotPositiveError, plain_weights, solve
from accord.closed_form.sums import Sums
from accord.core.errors import AccordError


@dataclass(frozen=True)
class Checked:
    """Labelled images as features φ, on which clients may be left out."""

    features: Tensor  # (N, d)
    labels: Tensor  # (N)

    def hits(self, sums: Sums, relative: float) -> Tensor | None:
        """(N) bool: the images that a fit with λ = relative·mean scatter gets right.

        None if there is no fit: too few images are left, or rounding has spoilt their scatter.
        """
        if sums.total < 2 or int((sums.counts > 0).sum()) < 2:
            return None
        try:
            weights, bias = plain_weights(sums, relative)
        except NotPositiveError:
            return None
        scores = self.features.double() @ weights + bias
        scores = scores.masked_fill(sums.counts == 0, -torch.inf)
        return scores.argmax(dim=1) == self.labels


@dataclass(frozen=True)
class Gain:
    """What leaving out one client would change."""

    before: float  # accuracy with all clients
    after: float  # accuracy without this one
    error: float  # standard error of the difference, paired by image

    @property
    def gain(self) -> float:
        return self.after - self.before

    @classmethod
    def of(cls, before: Tensor, after: Tensor) -> Gain:
        """From the images that are right before and after."""
        worse, better = int((before & ~after).sum()), int((after & ~before).sum())
        change = (better - worse) / len(before)
        variance = (better + worse) / len(before) - change**2
        return cls(
            before.double().mean().item(),
            after.double().mean().item(),
            (max(variance, 0.0) / len(before)) ** 0.5,
        )


def gains_without_each(
    total: Sums, clients: Iterable[Sums], checked: Checked, penalty: float | None = None
) -> Iterator[Gain | None]:
    """The gain of leaving out each client; None if the total cannot be without it.

    λ is that of the total (GCV if `penalty` is None), as a multiple of the mean scatter, because a
    client that sends large features changes the scatter itself.
    """
    relative = relative_penalty(total, penalty)
    before = checked.hits(total, relative)
    for after in hits_without_each(total, clients, checked, relative):
        yield None if before is None or after is None else Gain.of(before, after)


def hits_without_each(
    total: Sums, clients: Iterable[Sums], checked: Checked, relative: float
) -> Iterator[Tensor | None]:
    """The images that are right without each client; None if the total cannot be without it."""
    for one in clients:
        try:
            yield checked.hits(total - one, relative)
        except AccordError:
            yield None  # it is not a part of this total


def relative_penalty(total: Sums, penalty: float | None) -> float:
    """λ divided by the mean scatter of a feature."""
    scale = float(total.scatter.diagonal().mean())
    if penalty is None:
        penalty = solve(total).penalty
    return penalty / scale if scale > 0 else 0.0
