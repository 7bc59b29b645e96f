"""Sums of fixed features that clients send. Their total is the same for every partition.

A client sends its label counts n_c, the sum of φ over each class, and the upper triangle of the
scatter S = Σ(φ − μ)(φ − μ)ᵀ about its own mean μ. Sums can be added and subtracted again. Rounding
errors are smaller in a scatter about the mean than in one about 0.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from accord.core.errors import AccordError

Packing = Literal["float32", "float16", "int8"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
STEPS = 127  # the int8 value of a correlation of 1
NOISE = 1e-9  # × squared mean: the variance of a constant feature after rounding to float32
TINY = 1e-6  # × squared mean: the rounding error of float32 sums of few images
CLOSE = 1e-2  # the most that rounding may add to a correlation of 1
ROWS = 256  # rows of a scatter that are checked at a time
ROUNDING: dict[torch.dtype, float] = {  # the most by which packing may change a correlation
    torch.float32: 2**-24,
    torch.float16: 2**-12,
    torch.int8: 1 / (2 * STEPS),
}


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
        """The sums as tensors of a message.

        With fewer bits, the scatter is first scaled to correlations. Half the bits are enough for
        weakly correlated features, such as those of a kernel. Features of patches are strongly
        correlated, so that the rounding error of S is larger than a good λ.
        """
        told = {"label_counts": self.counts, "feature_sums": self.sums.float()}
        upper = _upper(len(self.scatter))
        if packing == "float32":
            return {**told, "scatter": self.scatter.masked_select(upper).float()}
        spread = self.scatter.diagonal().clamp(min=0).sqrt()
        scale = torch.where(spread > 0, spread, 1.0)
        packed = (self.scatter / scale / scale[:, None]).masked_select(upper)
        rounded = packed.half() if packing == "float16" else (packed * STEPS).round().to(torch.int8)
        return {**told, "scatter_spread": spread.float(), "scatter": rounded}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Sums:
        """The sums of a message that `check_sums` accepted."""
        sums = tensors["feature_sums"].double()
        width = sums.shape[1]
        packed = tensors["scatter"].double()
        if tensors["scatter"].dtype == torch.int8:
            packed = packed / STEPS
        scatter = torch.zeros(width, width, dtype=torch.float64)
        upper = _upper(width)
        for half in (scatter, scatter.T):
            half.masked_scatter_(upper, packed)
        if "scatter_spread" in tensors:
            spread = tensors["scatter_spread"].double()
            scatter *= spread * spread[:, None]
            scatter.diagonal().copy_(spread.square())  # rounded correlations may differ from 1
        return cls(tensors["label_counts"], sums, scatter)


def expected_sums(classes: int, width: int, packing: Packing) -> dict[str, Tensor]:
    """Name → a tensor of the right shape and type, for all tensors that an upload must hold."""
    half = width * (width + 1) // 2
    kind = {"float32": torch.float32, "float16": torch.float16, "int8": torch.int8}[packing]
    found = {
        "label_counts": torch.empty(classes, dtype=torch.int64, device="meta"),
        "feature_sums": torch.empty(classes, width, device="meta"),
        "scatter": torch.empty(half, dtype=kind, device="meta"),
    }
    if packing != "float32":
        found["scatter_spread"] = torch.empty(width, device="meta")
    return found


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
    _check_rank(found, ROUNDING[tensors["scatter"].dtype], where)
    # Rounding alone can cause negative eigenvalues of about √d times the error of one entry.
    slack = CLOSE + 4 * len(variance) ** 0.5 * ROUNDING[tensors["scatter"].dtype]
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


def _check_rank(found: Sums, rounding: float, where: str) -> None:
    """n images have at most n − 1 directions about their mean: tr(S) ≤ √(n − 1) ‖S‖_F."""
    trace = float(found.scatter.diagonal().sum())
    size = float(torch.linalg.matrix_norm(found.scatter)) + 2 * rounding * trace
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


def _upper(width: int) -> Tensor:
    """Which entries of a symmetric matrix are sent: those of its upper triangle, row by row."""
    return torch.ones(width, width, dtype=torch.bool).triu_()
