"""Muon for the kernels of convolutions (Jordan et al., 2024), as in airbench (arXiv:2404.00498)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from accord.client.momentum import gathered

MOMENTUM = 0.6
POLYNOMIAL = (3.4445, -4.7750, 2.0315)  # a, b, c: singular values of (0, 1] come close to 1
STEPS = 3  # of the iteration


@dataclass
class MuonGroup:
    """v ← m·v + g, W ← √o·W/‖W‖ − η·orth(g + m·v), with one row of W for each of o outputs.

    orth(UΣVᵀ) ≈ UVᵀ: a step has the same length in all directions, also in those in which the
    gradient is small. The kernels keep their length, which has no effect before a norm; therefore
    there is no weight decay, and η is a relative length.
    """

    parameters: list[nn.Parameter]
    base_lr: float
    lr: float = 0.0  # of the latest step
    buffers: dict[int, Tensor] = field(default_factory=dict)  # index of a parameter → its v

    @torch.no_grad()
    def step(self) -> None:
        for place, kernel in enumerate(self.parameters):
            if kernel.grad is None:
                continue
            gradient = kernel.grad
            v = gathered(self.buffers, place, gradient, MOMENTUM)
            ahead = gradient.add(v, alpha=MOMENTUM)
            turned = orthogonal(ahead.flatten(1)).view_as(kernel)
            length = kernel.norm().clamp(min=1e-12)
            kernel.mul_(len(kernel) ** 0.5 / length).add_(turned, alpha=-self.lr)


def orthogonal(matrix: Tensor) -> Tensor:
    """About UVᵀ for a matrix UΣVᵀ, by X ← aX + b(XXᵀ)X + c(XXᵀ)²X from X = matrix/‖matrix‖.

    Directions whose singular value is below about 1 % of the norm stay shorter.
    """
    a, b, c = POLYNOMIAL
    tall = matrix.shape[0] > matrix.shape[1]
    X: Tensor = matrix.T if tall else matrix
    X = X / X.norm().clamp(min=1e-12)
    for _ in range(STEPS):
        square = X @ X.T
        X = a * X + (b * square + c * square @ square) @ X
    return X.T if tall else X
