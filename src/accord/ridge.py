"""Ridge regression from sums alone: W = (S + λI)⁻¹ Σ(φ − μ)(y − ȳ)ᵀ, λ by cross-validation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from accord.errors import AccordError
from accord.sums import Sums

# log₁₀ of λ over a feature's scatter: where to look first, how far around the best after that, and
# in which steps downwards from there.
COARSE, FINER, DOWN = (-8.0, -6.0, -4.0, -2.0, 0.0, 2.0), (1.0, 0.5), 0.5
SLACK = 0.01  # of the least GCV: so much worse may a smaller λ be


@dataclass(frozen=True)
class Ridge:
    """score = W(φ − μ) + ȳ; `penalty` is λ, `freedom` the effective number of parameters.

    `variance` σ² is what an unseen image's scores are expected to miss y by, squared, per class
    (GCV): softmax(score/σ²) are the probabilities if they miss it as a normal variable would.
    """

    weights: Tensor  # (C, d)
    bias: Tensor  # (C)
    penalty: float
    freedom: float
    variance: float


def solve(
    sums: Sums,
    penalty: float | None = None,
    balance: float = 0.0,
    tell: Callable[[float], None] | None = None,
) -> Ridge:
    """The pooled solution. Without a `penalty`, λ is chosen by generalised cross-validation.

    It is the smallest whose GCV is within 1 % of the least. GCV judges squared errors, and a large
    λ makes these small by drawing all scores together; which is the largest suffers before that.
    GCV(λ) = n⁻¹‖Y − Ŷ‖² / (1 − dof/n)², dof = 1 + tr S(S + λI)⁻¹ (Golub, Heath and Wahba, 1979).
    `balance` β makes the classes count as though there were n_c^(1−β) images of each.
    """
    problem = _Problem(sums, balance)
    if problem.alike or not problem.spread:
        # All images look alike: nothing to tell classes apart by.
        weights = torch.zeros_like(sums.sums)
        return Ridge(weights, problem.prior, 0.0, 1.0, problem.spread / problem.n / len(weights))
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
    variance = problem.corrected(freedom, residual) / weights.shape[1]
    bias = problem.prior - problem.mean @ weights
    return Ridge(weights.T, bias, penalty, freedom, variance)


class NotPositiveError(ArithmeticError):
    """S + λI has directions of no or negative length."""


class _Problem:
    def __init__(self, sums: Sums, balance: float) -> None:
        self.n = sums.total
        means = sums.sums / sums.counts.clamp(min=1)[:, None]
        counts = _balanced(sums.counts.double(), balance)
        self.prior = counts / self.n
        self.mean = self.prior @ means
        self.S = sums.scatter
        if balance:
            # Scatter within classes is as it was, that of their means as their new counts have it.
            self.S = self.S - _between(sums.counts.double(), means) + _between(counts, means)
        # Σ(φ − μ)(y − ȳ)ᵀ, column by column: the class's own sum, less its count times μ.
        self.B = (counts[:, None] * (means - self.mean)).T
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
        left = 1 - min(freedom / self.n, 1 - 1e-9)
        return residual / left**2


def _balanced(counts: Tensor, balance: float) -> Tensor:
    """n_c^(1−β) for every class there is, times what makes them n again."""
    wanted = torch.where(counts > 0, counts ** (1 - balance), 0.0)
    return wanted * counts.sum() / wanted.sum()


def _between(counts: Tensor, means: Tensor) -> Tensor:
    """Σ_c n_c (μ_c − μ)(μ_c − μ)ᵀ."""
    apart = means - counts / counts.sum() @ means
    return apart.T @ (counts[:, None] * apart)


def _chosen(score: Callable[[float], float], tell: Callable[[float], None] | None) -> float:
    """The best exponent of a coarse grid, then ever closer around it, then as small as may be."""
    tried: dict[float, float] = {}
    down = round((COARSE[-1] - COARSE[0]) / DOWN)

    def attempt(exponent: float) -> float:
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
