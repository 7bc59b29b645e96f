"""From ridge scores to probabilities: Fisher's rule on the scores of unseen images.

Least squares shrinks scores towards the mean, those of rare classes the most, and a class between
two others can be masked. The sums alone give the class means and the covariance of the scores, so
Bayes' rule can correct this: with s | c ~ N(m_c, V),

    ln p(c | s) = s·V⁻¹m_c − m_c·V⁻¹m_c/2 + ln π_c + const.

With few images and many features, the score of each training image depends strongly on its own
label, and m and V of unseen images are uncertain. Therefore m and V are shrunk towards the targets
of least squares: m_c towards y, and V towards the variance of the error. With these values the
rule follows the scores themselves. temperature.py computes the calibration.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor

from accord.closed_form.ridge import Ridge
from accord.closed_form.temperature import class_covariances, drawn_scores, sureness

Prior = Literal["uniform", "data"]
LEAST = 1e-3  # the variances of V are raised by LEAST² and by this share of their mean
NEVER = 20.0  # a class that no client holds has a log-probability smaller by this much


def log_probabilities(found: Ridge, counts: Tensor, prior: Prior) -> tuple[Tensor, Tensor]:
    """(weights (C, d), bias (C)) of ln p(c | φ) + const, which is linear in φ like the scores."""
    known = _known(found, counts)
    own = torch.eye(len(counts), dtype=found.means.dtype)
    means = known * found.means + (1 - known) * own
    A = torch.linalg.solve(_drawn(found.within, found, known), means.T).T  # row c: V⁻¹m_c
    if not bool(found.weights.any()):
        A = torch.zeros_like(A)  # all images have the same features
    constant = -(A * means).sum(dim=1) / 2
    if prior == "data":
        constant = constant + counts.clamp(min=1).double().log()
    beta = _sureness(found, counts, prior, means, lambda scores: scores @ A.T + constant)
    weights, bias = beta * _centred(A @ found.weights), beta * _centred(A @ found.bias + constant)
    # A class that no client holds has the log-probability of the most frequent class − NEVER.
    there, most = counts > 0, int(counts.argmax())
    weights = torch.where(there[:, None], weights, weights[most])
    return weights, torch.where(there, bias, bias[most] - NEVER)


def _known(found: Ridge, counts: Tensor) -> float:
    """(1 − h²)(1 − C/n): the weight of the estimated moments; h = dof/n is the mean leverage."""
    n, classes = int(counts.sum()), int((counts > 0).sum())
    return (1 - min(found.freedom / n, 1.0) ** 2) * (1 - min(classes / n, 1.0))


def _drawn(within: Tensor, found: Ridge, known: float) -> Tensor:
    """A covariance of scores, shrunk by 1 − known towards σ²I, plus a small multiple of I."""
    own = torch.eye(len(within), dtype=within.dtype)
    V = known * within + (1 - known) * found.variance * own
    return V + (LEAST**2 + LEAST * V.diagonal().mean().clamp(min=0)) * own


def _sureness(
    found: Ridge, counts: Tensor, prior: Prior, means: Tensor, rule: Callable[[Tensor], Tensor]
) -> float:
    """1 / temperature of a `rule` that maps scores to ln p, with class probabilities by `prior`."""
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
    """`rows` minus their mean. This keeps the probabilities and loses less precision."""
    return rows - rows.mean(dim=0)
