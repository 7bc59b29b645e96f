"""Calibration: the temperature of linear scores, from the moments of unseen images' scores alone.

Fisher's rule uses one covariance V for all classes. This makes the rule linear, but overconfident:
in fact the score of an image's own class varies the most. The better the scores separate the
classes, the more they behave like proportions, which vary about their mean m_c like the counts of
a multinomial distribution. The rest of the covariance is the same for all classes:

    V_c = R κ (diag m_c − m_c m_cᵀ) + (1 − R) V,

where R is the correlation of labels and scores, and κ follows from Σ_c π_c tr V_c = tr V. ln p is
divided by the temperature that maximises the likelihood if the scores of class c are N(m_c, V_c).
This changes no predicted class, only the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from accord.core.randomness import torch_generator

DRAWS = 20_000  # number of random scores, over all classes
STEPS = 40  # number of bisection steps
LEAST, MOST = 0.01, 1.0  # range of 1 / temperature


def class_covariances(means: Tensor, within: Tensor, prior: Tensor) -> Callable[[int], Tensor]:
    """Class → V_c, from class means (C, C), the common covariance V and the class shares π."""
    shares = means.clamp(0, 1)
    shares = shares / shares.sum(dim=1, keepdim=True).clamp(min=1e-12)
    varying = float((prior * (shares * (1 - shares)).sum(dim=1)).sum())
    kappa = max(float(within.trace()), 0.0) / max(varying, 1e-12)
    told = correlation(means, prior)

    def covariance(label: int) -> Tensor:
        m = shares[label]
        return told * kappa * (m.diag() - m.outer(m)) + (1 - told) * within

    return covariance


def correlation(means: Tensor, prior: Tensor) -> float:
    """The correlation R of labels and scores, R² = (Σ π_c m_cc − Σ π_c²)/(1 − Σ π_c²).

    R² is the share of variance that least squares explains. Least squares has E[s yᵀ] = E[s sᵀ],
    so that R² depends on the class means alone.
    """
    chance = float(prior.square().sum())
    explained = float((prior * means.diagonal()).sum()) - chance
    return math.sqrt(min(max(explained / max(1 - chance, 1e-12), 0.0), 1.0))


def drawn_scores(means: Tensor, covariances: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """(random scores (N, C), their rows of `means`): equally many per row, from a fixed seed."""
    generator = torch_generator(0, "temperature")
    count = max(DRAWS // len(means), 100)
    scores = []
    for mean, V in zip(means, covariances, strict=True):
        noise = torch.randn(count, len(mean), generator=generator, dtype=mean.dtype)
        scores.append(mean + noise @ torch.linalg.cholesky(V).T)
    return torch.cat(scores), torch.arange(len(means)).repeat_interleave(count)


def sureness(logits: Tensor, labels: Tensor, worth: Tensor) -> float:
    """1 / temperature: the β ≤ 1 that maximises Σ worth · ln softmax(β · logits)[label].

    The sum is concave in β, so bisection finds the β at which its slope,
    Σ worth · (logit of the label − mean logit under softmax), is 0.
    """
    own = logits.gather(1, labels[:, None])[:, 0]

    def slope(beta: float) -> float:
        mean = ((beta * logits).softmax(dim=1) * logits).sum(dim=1)
        return float((worth * (own - mean)).sum())

    low, high = LEAST, MOST
    if slope(high) >= 0:
        return high
    for _ in range(STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if slope(middle) > 0 else (low, middle)
    return (low + high) / 2
