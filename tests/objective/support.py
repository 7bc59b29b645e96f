"""Noise, banks and batches for the tests of terms that look at a bank."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import torch_generator
from accord.objective import Batch, Term
from accord.objective.negatives import Rows
from accord.objective.reference import Reference

CHUNKS = [1, 3, 7, 4096]


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_generator(seed, "bank tests"), dtype=torch.float64)


def labels_of(seed: int, rows: int, classes: int) -> Tensor:
    return torch.randint(classes, (rows,), generator=torch_generator(seed, "labels"))


def rows_of(seed: int, labels: Tensor, width: int = 5) -> Rows:
    """Random unit features with these labels."""
    return Rows(F.normalize(noise(seed, len(labels), width), dim=1), labels)


def reference_of(rows: Rows, shares: Sequence[float] | Tensor) -> Reference:
    return Reference(rows, torch.as_tensor(shares, dtype=rows.features.dtype))


def batch_of(
    features: Tensor,
    labels: Tensor,
    *,
    queue: Rows | None = None,
    bank: Rows | None = None,
    reference: Reference | None = None,
) -> Batch:
    P = torch.eye(int(labels.max()) + 1, features.shape[1], dtype=features.dtype)
    counts = torch.bincount(labels, minlength=len(P))
    return Batch(
        features, features @ P.T, labels, P, counts, queue=queue, bank=bank, reference=reference
    )


def value_and_gradient(
    term: Term,
    features: Tensor,
    labels: Tensor,
    *,
    queue: Rows | None = None,
    bank: Rows | None = None,
    reference: Reference | None = None,
) -> tuple[Tensor, Tensor]:
    features = features.detach().clone().requires_grad_()
    loss = term(batch_of(features, labels, queue=queue, bank=bank, reference=reference))
    (gradient,) = torch.autograd.grad(loss, features)
    return loss.detach(), gradient
