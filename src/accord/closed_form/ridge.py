"""Ridge regression from sums alone: W = (S + λI)⁻¹ Σ(φ − μ)(y − ȳ)ᵀ, λ by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from accord.closed_form.sums import Sums
from accord.core.errors import AccordError

# log₁₀ of λ over a feature's scatter: where to look first, how far around the best after that, and
# in which steps downwards from there.
COARSE, FINER, DOWN = (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0), (1.0, 0.5), 0.5
SLACK = 0.01  # of the least GCV: so much worse may a smaller λ be


@dataclass(frozen=True)
class Ridge:
    """score = W(φ − μ) + ȳ; `penalty` is λ, `freedom` the effective number of parameters.

    `variance` is what an unseen image's scores are expected to miss y by, squared, per class (GCV).
    `means` and `within` tell how unseen images score: the mean of each class and the covariance
    about it. An image that was left out has (ŷ − hy)/(1 − h) where it has ŷ, h its leverage; with
    the mean leverage dof/n, what is left out of every class follows from the sums.
    """

    weights: Tensor  # (C, d)
    bias: Tensor  # (C)
    penalty: float
    freedom: float
    variance: float
    means: Tensor  # (C, C): row c, the scores of class c
    within: Tensor  # (C, C)


def solve(
    sums: Sums, penalty: float | None = None, tell: Callable[[float], None] | None = None
) -> Ridge:
    """The pooled solution. Without a `penalty`, λ is chosen by generalised cross-validation.

    It is the smallest whose GCV is within 1 % of the least. GCV judges squared errors, and a large
    λ makes these small by drawing all scores together; which is the largest suffers before that.
    GCV(λ) = n⁻¹‖Y − Ŷ‖² / (1 − dof/n)², dof = 1 + tr S(S + λI)⁻¹ (Golub, Heath and Wahba, 1979).
    """
    problem = _Problem(sums)
    if problem.alike or not problem.spread:
        # All images look alike: nothing to tell classes apart by.
        zeros = torch.zeros_like(sums.sums)
        means = problem.prior.expand(len(zeros), -1)
        variance = problem.spread / problem.n / len(zeros)
        return Ridge(zeros, problem.prior, 0.0, 1.0, variance, means, torch.zeros_like(means))
    if penalty is None:
        penalty = problem.scale * 10 ** _chosen(problem.validation, tell)
    try:
        weights, freedom, residual = problem.solution(penalty)
    except NotPositiveError:
        raise AccordError(
            f"the sums of these uploads have no ridge solution for λ = {penalty:.2g}: a scatter "
            "was rounded too much, or is not that of any images. Set a larger `penalty`, or "
            "`packing: float32` in the recipe."
        ) from None
    bias = problem.prior - problem.mean @ weights
    variance = problem.corrected(freedom, residual) / weights.shape[1]
    means, within = problem.unseen(weights, freedom)
    return Ridge(weights.T, bias, penalty, freedom, variance, means, within)


class NotPositiveError(ArithmeticError):
    """S + λI has directions of no or negative length."""


class _Problem:
    def __init__(self, sums: Sums) -> None:
        self.n = sums.total
        counts = sums.counts.double()
        self.prior, self.mean = counts / self.n, sums.mean
        self.S = sums.scatter
        # Σ(φ − μ)(y − ȳ)ᵀ, column by column: the class's own sum, less its count times μ.
        self.B = (sums.sums - counts[:, None] * self.mean).T
        self.spread = float((counts * (1 - self.prior)).sum())  # Σ‖y − ȳ‖²
        self.scale = float(self.S.diagonal().mean())
        # Means of float32 sums differ by rounding where images do not.
        self.alike = self.scale <= 1e-13 * self.n * float(self.mean.square().mean())

    def solution(self, penalty: float) -> tuple[Tensor, float, float]:
        """(W, dof, mean squared residual) for a λ."""
        shifted = self.S.clone()
        shifted.diagonal().add_(penalty)
        L, failed = torch.linalg.cholesky_ex(shifted)
        # A scatter has no negative eigenvalue but by rounding, which may not decide half of S + λI.
        if int(failed) or penalty < -2 * float(self.eigenvalues[0]):
            raise NotPositiveError(f"{penalty:.2g}")
        del shifted
        W = torch.cholesky_solve(self.B, L)
        lengths = self.eigenvalues.clamp(min=0)
        freedom = 1 + float((lengths / (lengths + penalty)).sum())
        fitted = float((W * self.B).sum())  # and SW = B − λW
        residual = self.spread - fitted - penalty * float(W.square().sum())
        return W, freedom, max(residual, 0.0) / self.n

    @cached_property
    def eigenvalues(self) -> Tensor:
        """Of S, the least first: with them any λ costs one Cholesky factor and no inverse."""
        found: Tensor = torch.linalg.eigvalsh(self.S)
        return found

    def validation(self, exponent: float) -> float:
        try:
            _, freedom, residual = self.solution(self.scale * 10**exponent)
        except NotPositiveError:
            return math.inf  # what rounding did to S is larger than this λ
        if freedom > (1 - 1e-3) * self.n or residual <= 0:
            return math.inf  # every image is met exactly, or so rounding says
        return self.corrected(freedom, residual)

    def corrected(self, freedom: float, residual: float) -> float:
        """GCV: the residual as it would be on images that W has not seen."""
        return residual / self._left(freedom) ** 2

    def unseen(self, weights: Tensor, freedom: float) -> tuple[Tensor, Tensor]:
        """(means, within) of the scores of images that W has not seen."""
        W, left = weights, self._left(freedom)
        share = self.prior.clamp(min=1 / self.n)[:, None]  # a class that is not there stays at ȳ
        apart = (self.B.T / self.n / share) @ W
        within = (W.T @ self.S @ W) / self.n - apart.T @ (self.prior[:, None] * apart)
        own = torch.eye(len(apart), dtype=W.dtype)
        return (apart + self.prior - (1 - left) * own) / left, within / left**2

    def _left(self, freedom: float) -> float:
        """1 − h, of the mean leverage h."""
        return 1 - min(freedom / self.n, 1 - 1e-9)


def _chosen(score: Callable[[float], float], tell: Callable[[float], None] | None) -> float:
    """The best exponent of a coarse grid, then ever closer around it, then as small as may be."""
    tried: dict[float, float] = {}
    down = round((COARSE[-1] - COARSE[0]) / DOWN)

    def attempt(exponent: float) -> float:
        if exponent not in tried:
            tried[exponent] = score(exponent)
        if tell:
            tell(len(tried) / (len(COARSE) + 2 * len(FINER) + down))
        return tried[exponent]

    for exponent in COARSE:
        attempt(exponent)
    for step in FINER:
        best = min(tried, key=tried.__getitem__)
        attempt(best - step)
        attempt(best + step)
    best = min(tried, key=tried.__getitem__)
    allowed = (1 + SLACK) * tried[best]
    while best - DOWN >= COARSE[0] and attempt(best - DOWN) <= allowed:
        best -= DOWN
    if tell:
        tell(1.0)
    return best
