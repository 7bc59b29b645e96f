"""Ridge regression from sums: W = (S + λI)⁻¹ Σ(φ − μ)(y − ȳ)ᵀ, with λ from cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from accord.closed_form.sums import Sums
from accord.core.errors import AccordError

# log₁₀ of λ divided by the mean scatter of a feature: the first grid, the distances of the values
# that are then tried around the best one, and the size of the steps down from there.
COARSE, FINER, DOWN = (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0), (1.0, 0.5), 0.5
SLACK = 0.01  # a smaller λ may have a GCV that is larger than the minimum by this share


@dataclass(frozen=True)
class Ridge:
    """score = W(φ − μ) + ȳ; `penalty` is λ, `freedom` the effective number of parameters.

    `variance` is the expected squared error of an unseen image's score, per class (GCV). `means`
    and `within` describe the scores of unseen images: the mean of each class and the covariance
    about it. If an image with the fitted score ŷ and the leverage h is left out of the fit, its
    score is (ŷ − hy)/(1 − h). With the mean leverage dof/n for h, the sums give these moments.
    """

    weights: Tensor  # (C, d)
    bias: Tensor  # (C)
    penalty: float
    freedom: float
    variance: float
    means: Tensor  # (C, C): row c holds the mean scores of class c
    within: Tensor  # (C, C)


def solve(
    sums: Sums, penalty: float | None = None, tell: Callable[[float], None] | None = None
) -> Ridge:
    """The pooled solution. Without a `penalty`, λ is chosen by generalised cross-validation.

    It is the smallest λ whose GCV is within 1 % of the minimum. GCV measures squared errors, and
    these can stay small when a large λ shrinks all scores towards their mean. The accuracy, which
    depends on which score is the largest, suffers at a smaller λ already.
    GCV(λ) = n⁻¹‖Y − Ŷ‖² / (1 − dof/n)², dof = 1 + tr S(S + λI)⁻¹ (Golub, Heath and Wahba, 1979).
    """
    problem = _Problem(sums)
    if problem.alike or not problem.spread:
        # All images have the same features or the same class: no classes can be separated.
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
            "was rounded too much, or no set of images has it. Set a larger `penalty`, or "
            "`packing: factor` or `float32` in the recipe."
        ) from None
    bias = problem.prior - problem.mean @ weights
    variance = problem.corrected(freedom, residual) / weights.shape[1]
    means, within = problem.unseen(weights, freedom)
    return Ridge(weights.T, bias, penalty, freedom, variance, means, within)


def plain_weights(sums: Sums, relative: float) -> tuple[Tensor, Tensor]:
    """W (d, C) and the bias for λ = relative·mean scatter; raises NotPositiveError.

    It needs one Cholesky factor, and no eigenvalues as `solve` does.
    """
    problem = _Problem(sums)
    weights = torch.cholesky_solve(problem.B, problem.factor(relative * problem.scale))
    return weights, problem.prior - problem.mean @ weights


class NotPositiveError(ArithmeticError):
    """S + λI is not positive definite."""


class _Problem:
    def __init__(self, sums: Sums) -> None:
        self.n = sums.total
        counts = sums.counts.double()
        self.prior, self.mean = counts / self.n, sums.mean
        self.S = sums.scatter
        # Column c of Σ(φ − μ)(y − ȳ)ᵀ is the sum of φ over class c minus n_c·μ.
        self.B = (sums.sums - counts[:, None] * self.mean).T
        self.spread = float((counts * (1 - self.prior)).sum())  # Σ‖y − ȳ‖²
        self.scale = float(self.S.diagonal().mean())
        # If all images are equal, rounding of the float32 sums can still make their means differ.
        self.alike = self.scale <= 1e-13 * self.n * float(self.mean.square().mean())

    def solution(self, penalty: float) -> tuple[Tensor, float, float]:
        """(W, dof, mean squared residual) for a λ."""
        L = self.factor(penalty)
        # A scatter has a negative eigenvalue only by rounding; λ must be twice its absolute value.
        if penalty < -2 * float(self.eigenvalues[0]):
            raise NotPositiveError(f"{penalty:.2g}")
        W = torch.cholesky_solve(self.B, L)
        lengths = self.eigenvalues.clamp(min=0)
        freedom = 1 + float((lengths / (lengths + penalty)).sum())
        fitted = float((W * self.B).sum())  # because SW = B − λW
        residual = self.spread - fitted - penalty * float(W.square().sum())
        return W, freedom, max(residual, 0.0) / self.n

    def factor(self, penalty: float) -> Tensor:
        """The Cholesky factor of S + λI."""
        shifted = self.S.clone()
        shifted.diagonal().add_(penalty)
        found = torch.linalg.cholesky_ex(shifted)
        if int(found.info):
            raise NotPositiveError(f"{penalty:.2g}")
        factor: Tensor = found.L
        return factor

    @cached_property
    def eigenvalues(self) -> Tensor:
        """The ascending eigenvalues of S. With them any λ needs one Cholesky factor, no inverse."""
        found: Tensor = torch.linalg.eigvalsh(self.S)
        return found

    def validation(self, exponent: float) -> float:
        try:
            _, freedom, residual = self.solution(self.scale * 10**exponent)
        except NotPositiveError:
            return math.inf  # the rounding error of S is larger than this λ
        if freedom > (1 - 1e-3) * self.n or residual <= 0:
            return math.inf  # the fit is exact, at least up to rounding
        return self.corrected(freedom, residual)

    def corrected(self, freedom: float, residual: float) -> float:
        """GCV: an estimate of the residual on images that were not used to fit W."""
        return residual / self._left(freedom) ** 2

    def unseen(self, weights: Tensor, freedom: float) -> tuple[Tensor, Tensor]:
        """(means, within) of the scores of images that were not used to fit W."""
        W, left = weights, self._left(freedom)
        share = self.prior.clamp(min=1 / self.n)[:, None]  # an absent class has `apart` = 0
        apart = (self.B.T / self.n / share) @ W
        within = (W.T @ self.S @ W) / self.n - apart.T @ (self.prior[:, None] * apart)
        own = torch.eye(len(apart), dtype=W.dtype)
        return (apart + self.prior - (1 - left) * own) / left, _positive(within) / left**2

    def _left(self, freedom: float) -> float:
        """1 − h, where h is the mean leverage."""
        return 1 - min(freedom / self.n, 1 - 1e-9)


def _positive(covariance: Tensor) -> Tensor:
    """A covariance that packing has rounded; a negative eigenvalue of it shows by how much.

    All eigenvalues are then raised by twice its absolute value. If the features separate the
    classes almost without error, the rest of the covariance is smaller than what was rounded.
    """
    smallest, mean = float(torch.linalg.eigvalsh(covariance)[0]), covariance.diagonal().mean()
    if smallest > -1e-9 * float(mean):
        return covariance
    return covariance - 2 * smallest * torch.eye(len(covariance), dtype=covariance.dtype)


def _chosen(score: Callable[[float], float], tell: Callable[[float], None] | None) -> float:
    """The best exponent of a coarse grid, refined around it and then lowered as SLACK allows."""
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
