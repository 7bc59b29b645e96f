"""What a client tells of fixed features: sums, which add up to the same total however it is dealt.

A client sends its label counts n_c, the sum of φ over each class, and the scatter
S = Σ(φ − μ)(φ − μ)ᵀ about its own mean μ, the upper triangle only. Sums can be added and taken
away again; about its own mean a scatter also keeps its digits.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from accord.core.errors import AccordError

Packing = Literal["float32", "float16", "int8"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
STEPS = 127  # of an int8 correlation
NOISE = 1e-12  # of a mean's square: the variance of a feature that never changes, in float32
TINY = 1e-6  # of a mean's square: what float32 sums of few images miss
CLOSE = 1e-2  # what rounding may add to a correlation of 1
ROUNDING: dict[torch.dtype, float] = {  # what packing may change a correlation by
    torch.float32: 2**-24,
    torch.float16: 2**-12,
    torch.int8: 1 / (2 * STEPS),
}


@dataclass(frozen=True)
class Sums:
    """Over some images: counts (C), sums of φ per class (C, d), scatter about the mean (d, d)."""

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

    def __add__(self, other: Sums) -> Sums:
        """Of the images of both (Chan, Golub and LeVeque, 1979)."""
        n, m = self.total, other.total
        scatter = self.scatter + other.scatter
        if n and m:
            apart = self.mean - other.mean
            scatter = scatter.addr(apart, apart, alpha=n * m / (n + m))
        return Sums(self.counts + other.counts, self.sums + other.sums, scatter)

    def __sub__(self, other: Sums) -> Sums:
        """Of the images that are left when those of `other`, which are among them, are gone."""
        counts = self.counts - other.counts
        if bool((counts < 0).any()):
            raise AccordError(
                "cannot take away images that were never added: of some class there are fewer than "
                "are to be removed."
            )
        sums = torch.where(counts[:, None] > 0, self.sums - other.sums, 0.0)
        n, m = int(counts.sum()), other.total
        if not n:
            return Sums.none(*self.sums.shape)
        scatter = self.scatter - other.scatter
        if n == 1:
            scatter = torch.zeros_like(scatter)  # one image is its own mean
        elif m:
            apart = sums.sum(dim=0) / n - other.mean
            scatter = scatter.addr(apart, apart, alpha=-n * m / (n + m))
        return Sums(counts, sums, scatter)

    # --- in a message ------------------------------------------------------------------------

    def tensors(self, packing: Packing) -> dict[str, Tensor]:
        """As they travel.

        Scaled to correlations, half the bits are enough for features that are hardly correlated
        (a kernel's); patches are strongly so, and what rounding adds to S outweighs a good λ.
        """
        told = {"label_counts": self.counts, "feature_sums": self.sums.float()}
        upper = _upper(len(self.scatter))
        if packing == "float32":
            return {**told, "scatter": self.scatter[upper[0], upper[1]].float()}
        spread = self.scatter.diagonal().clamp(min=0).sqrt()
        scale = torch.where(spread > 0, spread, 1.0)
        packed = (self.scatter / scale / scale[:, None])[upper[0], upper[1]]
        rounded = packed.half() if packing == "float16" else (packed * STEPS).round().to(torch.int8)
        return {**told, "scatter_spread": spread.float(), "scatter": rounded}

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> Sums:
        """From a message that `check_sums` found sound."""
        sums = tensors["feature_sums"].double()
        width = sums.shape[1]
        packed = tensors["scatter"].double()
        if tensors["scatter"].dtype == torch.int8:
            packed = packed / STEPS
        scatter = torch.zeros(width, width, dtype=torch.float64)
        upper = _upper(width)
        scatter[upper[0], upper[1]] = packed
        scatter[upper[1], upper[0]] = packed
        if "scatter_spread" in tensors:
            spread = tensors["scatter_spread"].double()
            scatter *= spread * spread[:, None]
            scatter.diagonal().copy_(spread.square())  # the rounded ones are not quite 1
        return cls(tensors["label_counts"], sums, scatter)


def expected_sums(classes: int, width: int, packing: Packing) -> dict[str, Tensor]:
    """Name → a tensor of the right shape and type, for everything such an upload must hold."""
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
    """Refuses numbers that no images could have given; shapes and types are right already."""
    found = Sums.of(tensors)
    variance = found.scatter.diagonal()
    if bool((variance < 0).any()):
        raise AccordError(f"{where}: a feature's scatter about its mean is below 0.")
    if bool(found.sums[found.counts == 0].any()):
        raise AccordError(f"{where}: it sums features of a class of which it counts no image.")
    if bool((_between(found) > variance * (1 + CLOSE) + TINY * found.mean.square()).any()):
        raise AccordError(
            f"{where}: its classes lie further apart than its scatter says: no images give both."
        )
    bound = variance.sqrt() * variance.sqrt()[:, None]
    if bool((found.scatter.abs() > bound * (1 + CLOSE) + 1e-12).any()):
        raise AccordError(
            f"{where}: two features are correlated by more than 1: no images give such a scatter."
        )
    # Rounding alone can give eigenvalues below 0, of about √d times what it does to one entry.
    slack = CLOSE + 4 * len(variance) ** 0.5 * ROUNDING[tensors["scatter"].dtype]
    # A feature that never changes has no correlations but those of what float32 missed.
    spread = (variance + NOISE * found.total * found.mean.square()).sqrt().clamp(min=1e-150)
    correlations = found.scatter / spread / spread[:, None]
    correlations.diagonal().add_(slack)
    if int(torch.linalg.cholesky_ex(correlations.float())[1]):
        raise AccordError(
            f"{where}: some mix of features has a scatter below 0: no images give such a scatter."
        )


def _between(sums: Sums) -> Tensor:
    """Σ_c n_c (μ_cj − μ_j)² of every feature j: what its variance is at the least."""
    counts = sums.counts.double()
    means = sums.sums / counts.clamp(min=1)[:, None]
    return counts @ (means - sums.mean).square()


def _upper(width: int) -> Tensor:
    return torch.triu_indices(width, width)
