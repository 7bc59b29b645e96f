"""A small fast net with a whitened first layer, after airbench (Jordan, 2024, arXiv:2404.00498)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from accord.nets.backbones.base import Encoder, backbones
from accord.nets.backbones.layers import Norm, conv_norm
from accord.nets.dead_leaves import leaf_pictures

SIDE = 2  # pixels of a patch of the first layer
PICTURES = 200  # synthetic images from which the whitening is computed
FLOOR = 5e-4  # is added to the eigenvalues, so that directions without contrast stay small


class Whitening(nn.Conv2d):
    """r = ±Λ^(−½)Vᵀp for every 2×2 patch p, cov p = VΛVᵀ: uncorrelated, of variance 1, fixed.

    The covariance is that of synthetic images, whose edges and spectra are like those of
    photographs, so that the layer depends on no real image and on no seed. Both signs are there
    because a ReLU follows.
    """

    def __init__(self, channels: int) -> None:
        super().__init__(channels, 2 * channels * SIDE**2, SIDE, bias=False)
        self.weight.requires_grad_(False)

    def set_values(self) -> None:
        self.weight.copy_(whitening_filters(self.in_channels))


def whitening_filters(channels: int) -> Tensor:
    """(2·4C, C, 2, 2): the filters, those of the largest eigenvalues first."""
    pictures = leaf_pictures(PICTURES, 32, channels, seed=0).double()
    patches = pictures.unfold(2, SIDE, 1).unfold(3, SIDE, 1).permute(0, 2, 3, 1, 4, 5)
    rows = patches.reshape(-1, channels * SIDE**2)
    values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
    filters = (vectors * (values.clamp(min=0) + FLOOR).rsqrt()).T.flip(0)
    # An eigenvector has no sign of its own: its largest value shall be positive.
    largest = filters.gather(1, filters.abs().argmax(dim=1, keepdim=True))
    filters = (filters * largest.sign()).reshape(-1, channels, SIDE, SIDE)
    return torch.cat([filters, -filters]).float()


def _stage(inputs: int, outputs: int, norm: Norm) -> nn.Sequential:
    """Two 3×3 convolutions; the image is halved before the first norm, which saves time."""
    conv, first = conv_norm(inputs, outputs, 3, norm)
    pool = nn.MaxPool2d(2, ceil_mode=True)  # rounds up, so that one pixel stays one pixel
    second = conv_norm(outputs, outputs, 3, norm)
    return nn.Sequential(conv, pool, first, nn.ReLU(inplace=True), *second, nn.ReLU(inplace=True))


def _whitened(widths: Sequence[int], channels: int, norm: Norm) -> Encoder:
    white = Whitening(channels)
    stages: dict[str, nn.Module] = {"stem": nn.Sequential(white, nn.ReLU(inplace=True))}
    inputs = white.out_channels
    for number, outputs in enumerate(widths, start=1):
        stages[f"stage{number}"] = _stage(inputs, outputs, norm)
        inputs = outputs
    return Encoder(stages, width=inputs, never_negative=True)


@backbones.register("white7")
def white7(channels: int, norm: Norm) -> Encoder:
    """Seven convolutions of 32, 128 and 128 channels; the first layer is whitened and fixed."""
    return _whitened((32, 128, 128), channels, norm)


@backbones.register("white7-wide")
def white7_wide(channels: int, norm: Norm) -> Encoder:
    """A white7 with 64, 128 and 256 channels, half as fast."""
    return _whitened((64, 128, 256), channels, norm)
