"""How sure to be of linear scores, from what is known of unseen images alone.

Fisher's rule takes one covariance V for all classes, which makes it linear, and too sure of itself:
in truth a class's own score varies the most. As far as scores tell classes apart, they behave as
shares do, which vary about their mean m_c as counts of a multinomial; the rest is alike for all:

    V_c = R κ (diag m_c − m_c m_cᵀ) + (1 − R) V,    R the correlation of labels and scores,

and κ follows from Σ_c π_c tr V_c = tr V. So ln p is divided by the temperature at which it is most
likely, were the scores N(m_c, V_c): that changes no answer, only its confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import torch
from torch import Tensor

from accord.core.randomness import torch_generator

DRAWS = 20_000  # scores of all classes together
STEPS = 40  # of halving the interval
LEAST, MOST = 0.01, 1.0  # 1 / temperature


def class_covariances(means: Tensor, within: Tensor, prior: Tensor) -> Callable[[int], Tensor]:
    """Class → V_c, for class means (C, C), their covariance in all and the classes' shares π."""
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
    """R of labels and scores, R² = (Σ π_c m_cc − Σ π_c²)/(1 − Σ π_c²): what least squares explains.

    Least squares has E[s yᵀ] = E[s sᵀ], and so the explained variance needs the means alone.
    """
    chance = float(prior.square().sum())
    explained = float((prior * means.diagonal()).sum()) - chance
    return math.sqrt(min(max(explained / max(1 - chance, 1e-12), 0.0), 1.0))


def drawn_scores(means: Tensor, covariances: Iterable[Tensor]) -> tuple[Tensor, Tensor]:
    """(scores (N, C), rows of `means` they are about): as many of each, always the same ones."""
    generator = torch_generator(0, "temperature")
    count = max(DRAWS // len(means), 100)
    scores = []
    for mean, V in zip(means, covariances, strict=True):
        noise = torch.randn(count, len(mean), generator=generator, dtype=mean.dtype)
        scores.append(mean + noise @ torch.linalg.cholesky(V).T)
    return torch.cat(scores), torch.arange(len(means)).repeat_interleave(count)


def sureness(logits: Tensor, labels: Tensor, worth: Tensor) -> float:
    """1 / temperature: β ≤ 1 with the largest Σ worth · ln softmax(β · logits)[label].

    That is concave in β, and so halving the interval finds where its slope,
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
