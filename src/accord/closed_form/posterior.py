"""From ridge scores to probabilities: Fisher's rule on the scores of unseen images.

Scores of least squares are drawn to the mean, rare classes' the most, and one class can lie hidden
between two others. How classes lie among the scores is known from the sums alone, so that Bayes'
rule can undo it: with s | c ~ N(m_c, V), ln p(c | s) = s·V⁻¹m_c − m_c·V⁻¹m_c/2 + ln π_c + const.

The fewer images there are for so many features, the more of its own label is in each one's score,
and the less is known of unseen ones. So m and V are drawn towards what least squares wants, y and
the variance of its error: towards the scores themselves. How sure to be: temperature.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from accord.closed_form.ridge import Ridge
from accord.closed_form.temperature import class_covariances, drawn_scores, sureness

Prior = Literal["uniform", "data"]
LEAST = 1e-3  # a score's standard deviation is at least this, and at least this share of V's mean
NEVER = 20.0  # by so much the log-probability of a class that nobody holds is below another's


def log_probabilities(found: Ridge, counts: Tensor, prior: Prior) -> tuple[Tensor, Tensor]:
    """(weights (C, d), bias (C)) of ln p(c | φ) + const: linear, as the scores are."""
    known = _known(found, counts)
    own = torch.eye(len(counts), dtype=found.means.dtype)
    means = known * found.means + (1 - known) * own
    A = torch.linalg.solve(_drawn(found.within, found, known), means.T).T  # row c: V⁻¹m_c
    if not bool(found.weights.any()):
        A = torch.zeros_like(A)  # all images look alike
    constant = -(A * means).sum(dim=1) / 2
    if prior == "data":
        constant = constant + counts.clamp(min=1).double().log()
    beta = _sureness(found, counts, prior, means, lambda scores: scores @ A.T + constant)
    weights, bias = beta * _centred(A @ found.weights), beta * _centred(A @ found.bias + constant)
    # A class that nobody holds is the most frequent one's shadow.
    there, most = counts > 0, int(counts.argmax())
    weights = torch.where(there[:, None], weights, weights[most])
    return weights, torch.where(there, bias, bias[most] - NEVER)


def _known(found: Ridge, counts: Tensor) -> float:
    """(1 − h²)(1 − C/n): how far the moments are to be trusted; h = dof/n is the mean leverage."""
    n, classes = int(counts.sum()), int((counts > 0).sum())
    return (1 - min(found.freedom / n, 1.0) ** 2) * (1 - min(classes / n, 1.0))


def _drawn(within: Tensor, found: Ridge, known: float) -> Tensor:
    """A covariance of scores, drawn by 1 − known towards σ²I, and a little away from 0."""
    own = torch.eye(len(within), dtype=within.dtype)
    V = known * within + (1 - known) * found.variance * own
    return V + (LEAST**2 + LEAST * V.diagonal().mean().clamp(min=0)) * own


def _sureness(
    found: Ridge, counts: Tensor, prior: Prior, means: Tensor, rule: Callable[[Tensor], Tensor]
) -> float:
    """1 / temperature of a rule from scores to ln p; classes are as likely as `prior` says."""
    if not bool(found.weights.any()):
        return 1.0
    known, share = _known(found, counts), counts.double() / counts.sum()
    own = class_covariances(found.means, found.within, share)
    held = torch.nonzero(counts > 0).flatten().tolist()
    V = (_drawn(own(label), found, known) for label in held)
    scores, labels = drawn_scores(means[held], V)
    worth = share[held][labels] if prior == "data" else torch.ones(len(labels))
    return sureness(rule(scores)[:, held], labels, worth)


def _centred(rows: Tensor) -> Tensor:
    """Without what all classes have in common: probabilities stay, and digits are saved."""
    return rows - rows.mean(dim=0)
