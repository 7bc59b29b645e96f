"""Four plain convolution blocks, a common small net of few-shot learning."""

from __future__ import annotations

from torch import nn

from accord.nets.backbones.base import Encoder, backbones
from accord.nets.backbones.layers import Norm, conv_norm

WIDTH = 64


@backbones.register("conv4")
def conv4(channels: int, norm: Norm) -> Encoder:
    """4 × (3×3 convolution, norm, ReLU, 2×2 max-pooling), with 64 channels."""
    stages: dict[str, nn.Module] = {}
    for number in range(1, 5):
        stages[f"stage{number}"] = nn.Sequential(
            *conv_norm(channels if number == 1 else WIDTH, WIDTH, 3, norm),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2, ceil_mode=True),  # rounds up, so that one pixel stays one pixel
        )
    return Encoder(stages, width=WIDTH, never_negative=True)
