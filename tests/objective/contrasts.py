"""The contrast with a queue by its definition, for tests of what the term repels."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import torch_generator
from accord.objective import Batch
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows

OPTIONS: list[dict[str, Any]] = [
    {},
    {"hardness": 2.0},
    {"synthetic": 3},
    {"synthetic": 50},
    {"balanced": True},
    {"hardness": 2.0, "synthetic": 3},
    {"hardness": 2.0, "balanced": True},
    {"hardness": 2.0, "synthetic": 3, "balanced": True},
]
ALL = OPTIONS[-1]
# How much the past counts for a class's say is not part of the definition.
DEFINED = [(each, n) for each in OPTIONS for n in (0, 15) if not (n and each.get("balanced"))]
seeds = st.integers(0, 10_000)


def contrast(**options: Any) -> Contrast:
    """The term, with as long a queue as there may be."""
    return Contrast(**{"queue": 100_000, **options})


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_generator(seed, "contrast"), dtype=torch.float64)


def labels_of(seed: int, rows: int, classes: int) -> Tensor:
    return torch.randint(classes, (rows,), generator=torch_generator(seed, "labels"))


def rows_of(seed: int, labels: Tensor) -> Rows:
    return Rows(F.normalize(noise(seed, len(labels), 5), dim=1), labels)


def batch_of(features: Tensor, labels: Tensor, queue: Rows | None = None) -> Batch:
    P = torch.eye(int(labels.max()) + 1, features.shape[1], dtype=features.dtype)
    counts = torch.bincount(labels, minlength=len(P))
    return Batch(features, features @ P.T, labels, P, counts, queue=queue)


def value_and_gradient(
    term: Contrast, features: Tensor, labels: Tensor, queue: Rows | None = None
) -> tuple[Tensor, Tensor]:
    features = features.detach().clone().requires_grad_()
    loss = term(batch_of(features, labels, queue))
    (gradient,) = torch.autograd.grad(loss, features)
    return loss.detach(), gradient


def slow_contrast(term: Contrast, features: Tensor, labels: Tensor, queue: Rows | None) -> Tensor:
    """The definition: image by image, pair by pair."""
    z, y, tau, beta = F.normalize(features, dim=1), labels.tolist(), term.temperature, term.hardness

    def cosine(i: int, row: Tensor) -> float:
        return float((z[i] @ row).detach())

    past = [] if queue is None else list(zip(queue.features, queue.labels.tolist(), strict=True))
    counts = Counter([*y, *(label for _, label in past)])
    say = {c: counts.total() / len(counts) / n if term.balanced else 1 for c, n in counts.items()}
    losses = defaultdict(list)
    for i, own in enumerate(y):
        positives = [j for j in range(len(y)) if y[j] == own and j != i]
        others = [(z[j], y[j]) for j in range(len(y)) if y[j] != own]
        others += [(row, label) for row, label in past if label != own]
        hard = [math.exp(beta * cosine(i, row)) for row, _ in others]
        mean = sum(hard) / len(hard) if hard else 1
        total = torch.zeros((), dtype=z.dtype)
        for j in positives:
            total = total + say[own] * (z[i] @ z[j] / tau).exp()
        for (row, label), weight in zip(others, hard, strict=True):
            total = total + say[label] * weight / mean * (z[i] @ row / tau).exp()
        alike = sorted((row for row, _ in others), key=partial(cosine, i), reverse=True)
        for one, two in list(pairwise(alike))[: term.synthetic]:
            made = F.normalize((one + two).detach(), dim=0)
            total = total + math.exp(beta * cosine(i, made)) / mean * (z[i] @ made / tau).exp()
        if positives:
            pulled = torch.stack([z[i] @ z[j] / tau for j in positives]).mean()
            losses[own if term.balanced else 0].append(total.log() - pulled)
    return torch.stack([torch.stack(each).mean() for each in losses.values()]).mean()
