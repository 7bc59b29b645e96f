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

from dataclasses import dataclass
from typing import Literal, Self

import torch
from torch import Tensor

from accord.closed_form.ridge import Ridge
from accord.closed_form.temperature import Ratios, drawn_scores, sureness

Prior = Literal["uniform", "data"]
LEAST = 1e-3  # the variances of V are raised by LEAST² and by this share of their mean
NEVER = 20.0  # a class that no client holds has a log-probability smaller by this much


def log_probabilities(found: Ridge, counts: Tensor, prior: Prior) -> tuple[Tensor, Tensor]:
    """(weights (C, d), bias (C)) of ln p(c | φ) + const, which is linear in φ like the scores."""
    moments = Moments.of(found, counts)
    A = torch.linalg.solve(moments.raised, moments.means.T).T  # row c: V⁻¹m_c
    if not bool(found.weights.any()):
        A = torch.zeros_like(A)  # all images have the same features
    constant = -(A * moments.means).sum(dim=1) / 2
    if prior == "data":
        constant = constant + counts.clamp(min=1).double().log()
    A, constant = _centred(A), _centred(constant)
    beta = _sureness(found, counts, prior, moments, A, constant) if bool(A.any()) else 1.0
    weights, bias = beta * (A @ found.weights), beta * (A @ found.bias + constant)
    # A class that no client holds has the log-probability of the most frequent class − NEVER.
    there, most = counts > 0, int(counts.argmax())
    weights = torch.where(there[:, None], weights, weights[most])
    return weights, torch.where(there, bias, bias[most] - NEVER)


@dataclass(frozen=True)
class Moments:
    """m (rows) and V of the scores of unseen images, shrunk by 1 − known towards I and σ²I.

    known = (1 − h²)(1 − C/n); h = dof/n is the mean leverage.
    """

    known: float
    means: Tensor
    within: Tensor

    @classmethod
    def of(cls, found: Ridge, counts: Tensor) -> Self:
        n, classes = int(counts.sum()), int((counts > 0).sum())
        known = (1 - min(found.freedom / n, 1.0) ** 2) * (1 - min(classes / n, 1.0))
        own = torch.eye(len(counts), dtype=found.means.dtype)
        means = known * found.means + (1 - known) * own
        return cls(known, means, known * found.within + (1 - known) * found.variance * own)

    @property
    def raised(self) -> Tensor:
        """V plus a small multiple of I, which has an inverse."""
        V = self.within.clone()
        V.diagonal().add_(LEAST**2 + LEAST * V.diagonal().mean().clamp(min=0))
        return V


def _sureness(
    found: Ridge, counts: Tensor, prior: Prior, moments: Moments, rule: Tensor, constant: Tensor
) -> float:
    """1 / temperature of ln p = rule·s + constant, with class probabilities by `prior`."""
    held = torch.nonzero(counts > 0).flatten()
    share = counts[held].double() / counts.sum()
    ratios = Ratios.of(found.means[held], found.within, share)
    excess = excesses(moments, found.within, counts[held])
    rule, constant, logits = rule[held].T, constant[held], []
    for row, scores in enumerate(drawn_scores(moments.means[held], moments.within, ratios)):
        said = scores @ rule + constant
        said[:, row] -= excess[row]
        logits.append(said.float())
    labels = torch.arange(len(held)).repeat_interleave(len(logits[0]))
    worth = share[labels] if prior == "data" else torch.ones(len(labels))
    return sureness(torch.cat(logits), labels, worth)


def excesses(moments: Moments, within: Tensor, counts: Tensor) -> Tensor:
    """By how much m_c·V⁻¹m_c is too large for ln p(c) of unseen images of class c, for each class.

    The mean score of n_c images differs from that of all images of the class by a random η with
    the covariance `within`/n_c. m_c contains known·η, but the scores of unseen images do not. The
    mean of (known·η)·V⁻¹(known·η) is known² tr(V⁻¹ within)/n_c, at most about C/n_c: it matters
    for many classes with few images each.
    """
    ratio: Tensor = torch.linalg.solve(moments.raised, within).trace()
    return moments.known**2 * ratio / counts


def _centred(rows: Tensor) -> Tensor:
    """`rows` minus their mean. This keeps the probabilities and loses less precision."""
    return rows - rows.mean(dim=0)
