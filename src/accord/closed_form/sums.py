"""Sums of fixed features that clients send. Their total is the same for every partition.

A client sends its label counts n_c, the sum of φ over each class, and the upper triangle of the
scatter S = Σ(φ − μ)(φ − μ)ᵀ about its own mean μ. Sums can be added and subtracted again. Rounding
errors are smaller in a scatter about the mean than in one about 0.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from accord.closed_form.packing import Packing, expected_scatter, packed, rounding, unpacked
from accord.core.errors import AccordError

NOISE = 1e-7  # × squared mean: far above the variance of a constant feature after rounding
TINY = 1e-6  # × squared mean: the rounding error of float32 sums of few images
CLOSE = 1e-2  # the most that rounding may add to a correlation of 1
ROWS = 256  # rows of a scatter that are checked at a time


@dataclass(frozen=True)
class Sums:
    """Sums over images: counts (C), sums of φ per class (C, d), scatter about the mean (d, d)."""

    counts: Tensor
    sums: Tensor
    scatter: Tensor

    @classmethod
    def none(cls, classes: int, width: int) -> Sums:
        return cls(
            torch.zeros(classes, dtype=torch.int64),
            torch.zeros(classes, width, dtype=torch.float64),
            torch.zeros(width, width, dtype=torch.float64),
        )

    @property
    def total(self) -> int:
        return int(self.counts.sum())

    @property
    def mean(self) -> Tensor:
        return self.sums.sum(dim=0) / max(self.total, 1)

    @property
    def means(self) -> Tensor:
        """The mean of each class, (C, d); 0 for a class without images."""
        return self.sums / self.counts.double().clamp(min=1)[:, None]

    def __add__(self, other: Sums) -> Sums:
        """The sums over the images of both (Chan, Golub and LeVeque, 1979)."""
        n, m = self.total, other.total
        scatter = self.scatter + other.scatter
        if n and m:
            apart = self.mean - other.mean
            scatter = scatter.addr(apart, apart, alpha=n * m / (n + m))
        return Sums(self.counts + other.counts, self.sums + other.sums, scatter)

    def __sub__(self, other: Sums) -> Sums:
        """The sums without the images of `other`, which must be part of these sums."""
        counts = self.counts - other.counts
        if bool((counts < 0).any()):
            raise AccordError(
                "cannot remove images that were never added: the sums hold fewer images of some "
                "class than are to be removed."
            )
        sums = torch.where(counts[:, None] > 0, self.sums - other.sums, 0.0)
        n, m = int(counts.sum()), other.total
        if not n:
            return Sums.none(*self.sums.shape)
        scatter = self.scatter - other.scatter
        if n == 1:
            scatter = torch.zeros_like(scatter)  # a single image equals its mean
        elif m:
            apart = sums.sum(dim=0) / n - other.mean
            scatter = scatter.addr(apart, apart, alpha=-n * m / (n + m))
        return Sums(counts, sums, scatter)

    # --- in a message ------------------------------------------------------------------------

    def tensors(self, packing: Packing) -> dict[str, Tensor]:
        """The sums as tensors of a message."""
        told = {"label_counts": self.counts, "feature_sums": self.sums.float()}
        return {**told, **packed(self.scatter, packing)}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Sums:
        """The sums of a message that `check_sums` accepted."""
        sums = tensors["feature_sums"].double()
        return cls(tensors["label_counts"], sums, unpacked(tensors, sums.shape[1]))


def expected_sums(classes: int, width: int, packing: Packing) -> dict[str, Tensor]:
    """Name → a tensor of the right shape and type, for all tensors that an upload must hold."""
    return {
        "label_counts": torch.empty(classes, dtype=torch.int64, device="meta"),
        "feature_sums": torch.empty(classes, width, device="meta"),
        **expected_scatter(width, packing),
    }


def check_sums(tensors: dict[str, Tensor], where: str) -> None:
    """Refuses values that no set of images can have. Shapes and types were checked before."""
    found = Sums.of(tensors)
    variance = found.scatter.diagonal()
    if bool((variance < 0).any()):
        raise AccordError(f"{where}: a feature's scatter about its mean is below 0.")
    if bool(found.sums[found.counts == 0].any()):
        raise AccordError(f"{where}: it sums features of a class, but it counts no image of it.")
    if bool((_between(found) > variance * (1 + CLOSE) + TINY * found.mean.square()).any()):
        raise AccordError(
            f"{where}: its classes lie further apart than its scatter allows: no set of images has "
            "such sums."
        )
    if not _within_bounds(found.scatter):
        raise AccordError(
            f"{where}: two features are correlated by more than 1: no set of images has such a "
            "scatter."
        )
    rounded = rounding(tensors)
    _check_rank(found, rounded, where)
    # Rounding alone can cause negative eigenvalues of about √d times the error of one entry.
    slack = CLOSE + 4 * len(variance) ** 0.5 * rounded
    # The correlations of a constant feature come from float32 rounding errors alone.
    spread = (variance + NOISE * found.total * found.mean.square()).sqrt().clamp(min=1e-150)
    # The scatter is not needed any more, so that no further matrix of its size is made. What is
    # left of it without the scatter of the class means is the scatter within classes.
    apart = (found.means - found.mean) * found.counts.double().sqrt()[:, None]
    correlations = found.scatter.addmm_(apart.T, apart, alpha=-1).div_(spread).div_(spread[:, None])
    correlations.diagonal().add_(slack)
    if int(torch.linalg.cholesky_ex(correlations.float())[1]):
        raise AccordError(
            f"{where}: some mix of features has a scatter below 0, or below that of its class "
            "means: no set of images has such a scatter."
        )


def _check_rank(found: Sums, rounded: float, where: str) -> None:
    """n images have at most n − 1 directions about their mean: tr(S) ≤ √(n − 1) ‖S‖_F."""
    trace = float(found.scatter.diagonal().sum())
    size = float(torch.linalg.matrix_norm(found.scatter)) + 2 * rounded * trace
    noise = TINY * float(found.sums.square().sum()) / max(found.total, 1)
    most = max(found.total - 1, 0) ** 0.5 * size * (1 + CLOSE) + noise
    if trace > most:
        raise AccordError(
            f"{where}: its scatter has more directions than its {found.total} images can have: "
            f"expected a trace of at most {most:.4g}; found {trace:.4g}."
        )


def _within_bounds(scatter: Tensor) -> bool:
    """Whether |S_ij| ≤ √(S_ii S_jj), up to rounding; a few rows at a time, to save memory."""
    deviation = scatter.diagonal().sqrt()
    pairs = zip(torch.split(scatter, ROWS), torch.split(deviation, ROWS), strict=True)
    return not any(
        bool((rows.abs() > some[:, None] * deviation * (1 + CLOSE) + 1e-12).any())
        for rows, some in pairs
    )


def _between(sums: Sums) -> Tensor:
    """Σ_c n_c (μ_cj − μ_j)² of every feature j, a lower bound of S_jj."""
    return sums.counts.double() @ (sums.means - sums.mean).square()
