"""Nyström features of a Gaussian kernel (Williams and Seeger, 2001)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.nets.maps.base import Limits

JITTER = 1e-6  # added to the kernel's diagonal, because landmarks may be equal
RADIUS = 2.0  # of 1, because L⁻¹ enlarges the rounding errors of a float32 kernel
FAINT = 1e-4  # a feature with less than this share of its block's largest std is ignored


class Nystrom(nn.Module):
    """φ = L⁻¹(k(a) − k̄), k_j(a) = exp(−γ‖a − l_j‖²), K_mm = LLᵀ over the landmarks l.

    a are features, standardised with the statistics of the public images and scaled so that the
    mean squared distance of two images is 1. ⟨φ(x), φ(y)⟩ then approximates the centred kernel.
    """

    centre: Tensor
    scale: Tensor
    landmarks: Tensor
    lengths: Tensor  # ‖l_j‖², which is needed for every distance
    whiten: Tensor
    shift: Tensor

    def __init__(self, inputs: int, landmarks: int, gamma: float) -> None:
        super().__init__()
        self.gamma = gamma
        for name, shape in (
            ("centre", (inputs,)),
            ("scale", (inputs,)),
            ("landmarks", (landmarks, inputs)),
            ("lengths", (landmarks,)),
            ("whiten", (landmarks, landmarks)),
            ("shift", (landmarks,)),
        ):
            self.register_buffer(name, torch.empty(shape))

    def forward(self, features: Tensor) -> Tensor:
        a = (features - self.centre) * self.scale
        k = gaussian(a, self.landmarks, self.lengths, self.gamma)
        return (k - self.shift) @ self.whiten.T

    def limits(self) -> Limits:
        """‖L⁻¹k(a)‖₂ ≤ 1 for every a: it is the length of a projection of a unit vector."""
        centre = -(self.whiten.double() @ self.shift.double())
        return Limits(centre - RADIUS, centre + RADIUS, float(centre.norm()) + RADIUS)


def gaussian(a: Tensor, b: Tensor, lengths: Tensor, gamma: float) -> Tensor:
    """The matrix exp(−γ‖a_i − b_j‖²), (N, M); `lengths` are ‖b_j‖²."""
    products = torch.addmm(lengths, a, b.T, alpha=-2)
    distances = products.add_(a.square().sum(dim=1, keepdim=True)).clamp_(min=0)
    return distances.mul_(-gamma).exp_()


def draw_nystrom(
    features: Tensor,
    weights: Tensor,
    landmarks: int,
    gamma: float,
    draws: torch.Generator,
    widths: Sequence[int] | None = None,
) -> dict[str, Tensor]:
    """The values of a `Nystrom`, computed from the features of all public images.

    `weights` (inputs) multiply the standardised features. `widths` are the widths of the blocks
    that are concatenated in `features`; without them there is one block.
    """
    widths = list(widths or [features.shape[1]])
    if landmarks > len(features):
        raise AccordError(
            f"map.landmarks: expected at most the {len(features)} public images; found "
            f"{landmarks}. Use fewer landmarks, or set a larger data.public."
        )
    spread, centre = torch.std_mean(features.double(), dim=0)
    # The largest standard deviation is taken within each block: weights set the scale of blocks.
    usual_of_block = torch.cat([one.max().expand(len(one)) for one in torch.split(spread, widths)])
    changes = spread > FAINT * usual_of_block
    if not bool(changes.any()):
        raise AccordError(
            "map.landmarks: the public images all look alike, so their distances are 0. Use other "
            "public images, or set landmarks to 0."
        )
    scale = torch.where(changes, weights.double() / spread, 0.0)
    a = (features.double() - centre) * scale
    usual = (2 * a.var(dim=0).sum()).sqrt()  # the root mean squared distance of two images
    a, scale = a / usual, scale / usual
    chosen = a[torch.randperm(len(a), generator=draws)[:landmarks]]
    lengths = chosen.square().sum(dim=1)
    K = gaussian(chosen, chosen, lengths, gamma)
    K.diagonal().add_(JITTER)
    L = torch.linalg.cholesky(K)
    whiten = torch.linalg.solve_triangular(L, torch.eye(len(L), dtype=L.dtype), upper=False)
    public = [gaussian(some, chosen, lengths, gamma) for some in torch.split(a, 512)]
    found = {
        **{"centre": centre, "scale": scale, "landmarks": chosen, "lengths": lengths},
        **{"whiten": whiten, "shift": torch.cat(public).mean(dim=0)},
    }
    return {name: tensor.float() for name, tensor in found.items()}
