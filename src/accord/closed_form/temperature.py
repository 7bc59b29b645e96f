"""Calibration: the temperature of linear scores, from the moments of unseen images' scores alone.

Fisher's rule uses one covariance V for all classes. This makes the rule linear, but overconfident:
in fact the score of an image's own class varies the most. The better the scores separate the
classes, the more they behave like proportions, which vary about their mean m_c like the counts of
a multinomial distribution, M_c = diag m_c − m_c m_cᵀ. Scores of many classes are correlated, which
proportions are not. Therefore only the ratio of M_c to its mean M over the classes is used:

    V_c = V^½ (R M^-½ M_c M^-½ + (1 − R) I) V^½,    so that Σ_c π_c V_c = V.

R² is the share of the scores' variance that lies between the classes. Scores of class c are drawn
from N(m_c, V_c), and ln p is divided by the temperature that maximises their likelihood. This
changes no predicted class, only the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from accord.core.randomness import torch_generator

DRAWS = 20_000  # number of random scores, over all classes
FEWEST = 20  # number of random scores of a class, if there are more than 1,000 classes
STEPS = 24  # number of bisection steps
LEAST, MOST = 0.01, 1.0  # range of 1 / temperature
SMALL = 1e-3  # M_c is raised by this share of the mean variance, so that M has an inverse


@dataclass(frozen=True)
class Ratios:
    """What V_c of every class needs besides V: m_c as proportions (rows), M + εI, ε and R."""

    shares: Tensor
    mean: Tensor
    small: float
    told: float

    @classmethod
    def of(cls, means: Tensor, within: Tensor, prior: Tensor) -> Ratios:
        """From the mean scores (rows) and the class probabilities π of all classes that occur."""
        shares = means.clamp(0, 1)
        shares = shares / shares.sum(dim=1, keepdim=True).clamp(min=1e-12)
        mean = (prior @ shares).diag() - shares.T @ (prior[:, None] * shares)
        small = SMALL * max(float(mean.diagonal().mean()), SMALL / len(mean))
        mean.diagonal().add_(small)
        return cls(shares, mean, small, correlation(means, within, prior))


def drawn_scores(means: Tensor, within: Tensor, ratios: Ratios) -> Iterator[Tensor]:
    """Random scores (N, C) of N(m_c, V_c) for each row m_c of `means`; `within` is V.

    With independent standard normal e, f and g, n = √m_c∘e − (√m_c·e)m_c + √ε f has the covariance
    M_c + εI, so that the noise V^½(√R M^-½ n + √(1 − R) g) has the covariance V_c.
    """
    generator = torch_generator(0, "temperature")
    count = max(DRAWS // len(means), FEWEST)
    root = power(within, 0.5)
    scaled = root @ power(ratios.mean, -0.5)
    for mean, m in zip(means, ratios.shares, strict=True):
        e, f, g = torch.randn(3, count, len(m), generator=generator, dtype=m.dtype)
        e = m.sqrt() * e
        n = e - e.sum(dim=1, keepdim=True) * m + math.sqrt(ratios.small) * f
        noise = math.sqrt(ratios.told) * n @ scaled.T + math.sqrt(1 - ratios.told) * g @ root
        yield mean + noise


def power(matrix: Tensor, exponent: float) -> Tensor:
    """A power of a symmetric matrix, whose eigenvalues below 0 are rounding errors."""
    lengths, axes = torch.linalg.eigh(matrix)
    floor = 1e-12 * float(lengths[-1].clamp(min=1e-12))
    found: Tensor = (axes * lengths.clamp(min=floor) ** exponent) @ axes.T
    return found


def correlation(means: Tensor, within: Tensor, prior: Tensor) -> float:
    """R, the correlation of scores and classes: R² = b/(b + tr V), b = Σ_c π_c‖m_c − m̄‖².

    R² is the share of the scores' variance that lies between the classes. The share of the labels'
    variance that the scores explain is the same for equally separable classes, but it becomes
    small with many classes, because most differences of scores then tell nothing about the class.
    """
    apart = means - prior @ means
    between = float((prior[:, None] * apart.square()).sum())
    total = between + max(float(within.trace()), 0.0)
    return math.sqrt(between / total) if total > 0 else 0.0


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
