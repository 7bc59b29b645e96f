"""A scatter in a message: half of a symmetric matrix, as it is or with fewer bits."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Packing = Literal["float32", "float16", "int8", "factor"]
PACKINGS: tuple[Packing, ...] = get_args(Packing)
STEPS = 127  # the int8 value of a correlation of 1
RAISED = 1e-6  # is added to the variances before a factor is computed, and multiplied until it is
BLOCK = 512  # rows of a factor that are multiplied at a time
KINDS = {
    "float32": torch.float32,
    "float16": torch.float16,
    "int8": torch.int8,
    "factor": torch.float16,
}


def packed(scatter: Tensor, packing: Packing) -> dict[str, Tensor]:
    """The upper triangle of a scatter, or of its factor, as tensors of a message.

    With fewer bits, the scatter S is first scaled to correlations C, S_ij = s_i s_j C_ij.

    float16, int8: the correlations are rounded. The error is a matrix of small random numbers,
        about equally large in every direction. Half the bits are enough for weakly correlated
        features, such as those of a kernel. Features of patches are strongly correlated: in many
        directions C is smaller than the error, and so is a good λ.
    factor: R of C + εI = RᵀR, upper triangular, is rounded to float16. In a direction v the error
        of RᵀR is vᵀδRᵀRv + vᵀRᵀδRv + ‖δRv‖², about 2‖δRv‖√(vᵀCv), so that it is smaller where C is
        smaller, and RᵀR never has a negative eigenvalue. Half the bits are then enough for patches
        too. But factors of several clients cannot be added, as secure aggregation needs it.
    """
    upper = upper_triangle(len(scatter))
    if packing == "float32":
        return {"scatter": scatter.masked_select(upper).float()}
    spread = scatter.diagonal().clamp(min=0).sqrt()
    scale = torch.where(spread > 0, spread, 1.0)
    correlations = scatter / scale / scale[:, None]
    told = {"scatter_spread": spread.float()}
    if packing == "factor":
        return {**told, "scatter_factor": _factor(correlations).masked_select(upper).half()}
    half = correlations.masked_select(upper)
    rounded = half.half() if packing == "float16" else (half * STEPS).round().to(torch.int8)
    return {**told, "scatter": rounded}


def unpacked(tensors: dict[str, Tensor], width: int) -> Tensor:
    """The scatter (d, d) of a message, in double precision."""
    upper = upper_triangle(width)
    half = tensors["scatter_factor"] if "scatter_factor" in tensors else tensors["scatter"]
    values = half.double() / (STEPS if half.dtype == torch.int8 else 1)
    found = torch.zeros(width, width, dtype=torch.float64).masked_scatter_(upper, values)
    if "scatter_factor" in tensors:
        found = squared(found)
        length = found.diagonal().sqrt()
        length = torch.where(length > 0, length, 1.0)
        found /= length * length[:, None]  # no correlation is larger than 1 after rounding
    else:
        found.T.masked_scatter_(upper, values)
    if "scatter_spread" in tensors:
        spread = tensors["scatter_spread"].double()
        found *= spread * spread[:, None]
        found.diagonal().copy_(spread.square())  # rounded correlations may differ from 1
    return found


def squared(factor: Tensor) -> Tensor:
    """RᵀR of an upper triangular R: S_ij = Σ_{k ≤ min(i, j)} R_ki R_kj, a sixth of all products."""
    found = torch.empty_like(factor)
    for first in range(0, len(factor), BLOCK):
        last = first + BLOCK
        rows = factor[:last, first:last].T @ factor[:last, first:]
        found[first:last, first:] = rows
        found[first:, first:last] = rows.T
        square = found[first:last, first:last]
        square.copy_(square.triu() + square.triu(1).T)  # its halves were rounded differently
    return found


def variances(tensors: dict[str, Tensor], width: int) -> Tensor:
    """The diagonal of the scatter of a message, in double precision, without the other entries."""
    if "scatter_spread" in tensors:
        return tensors["scatter_spread"].double().square()
    rows = torch.arange(width)
    return tensors["scatter"][rows * width - rows * (rows - 1) // 2].double()


def rounding(tensors: dict[str, Tensor]) -> float:
    """The most by which packing may have changed a correlation."""
    if "scatter_factor" in tensors:
        return 2**-10  # 2^-11 of every entry of both rows of R, whose lengths are 1
    of = {torch.float32: 2**-24, torch.float16: 2**-12, torch.int8: 1 / (2 * STEPS)}
    return of[tensors["scatter"].dtype]


def expected_scatter(width: int, packing: Packing) -> dict[str, Tensor]:
    """Name → a tensor of the right shape and type, for all tensors of a packed scatter."""
    half = torch.empty(width * (width + 1) // 2, dtype=KINDS[packing], device="meta")
    if packing == "float32":
        return {"scatter": half}
    name = "scatter_factor" if packing == "factor" else "scatter"
    return {name: half, "scatter_spread": torch.empty(width, device="meta")}


def upper_triangle(width: int) -> Tensor:
    """Which entries of a symmetric matrix are sent: those of its upper triangle, row by row."""
    return torch.ones(width, width, dtype=torch.bool).triu_()


def _factor(correlations: Tensor) -> Tensor:
    """R, upper triangular, of C + εI = RᵀR with the smallest ε of 1e-6, 1e-5, … that has one.

    Sums of float32 products can have negative eigenvalues larger than 1e-6. Numbers that are not
    finite have no factor; they stay, and the server refuses them.
    """
    if not bool(correlations.isfinite().all()):
        return correlations
    variances, raised = correlations.diagonal().clone(), RAISED
    while True:
        correlations.diagonal().copy_(variances + raised)
        found = torch.linalg.cholesky_ex(correlations, upper=True)
        if not int(found.info):
            factor: Tensor = found.L
            return factor
        raised *= 10
