"""ResNets with CIFAR stems (3×3, stride 1, no pooling), after He et al., arXiv:1512.03385."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from accord.nets.backbones.base import Encoder, backbones
from accord.nets.backbones.layers import Norm, conv_norm


class Residual(nn.Module):
    """relu(body(x) + shortcut(x)); the shortcut is a 1×1 convolution if the shape changes."""

    def __init__(
        self, body: nn.Sequential, inputs: int, outputs: int, stride: int, norm: Norm
    ) -> None:
        super().__init__()
        self.body = body
        same_shape = inputs == outputs and stride == 1
        self.shortcut = nn.Sequential(
            *(() if same_shape else conv_norm(inputs, outputs, 1, norm, stride))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu_(self.body(x).add_(self.shortcut(x)))


def basic(inputs: int, outputs: int, stride: int, norm: Norm) -> Residual:
    """A block of two 3×3 convolutions."""
    body = nn.Sequential(
        *conv_norm(inputs, outputs, 3, norm, stride),
        nn.ReLU(inplace=True),
        *conv_norm(outputs, outputs, 3, norm),
    )
    return Residual(body, inputs, outputs, stride, norm)


def bottleneck(inputs: int, outputs: int, stride: int, norm: Norm) -> Residual:
    """A block that reduces to a quarter of the outputs (1×1), convolves (3×3) and expands (1×1)."""
    narrow = outputs // 4
    body = nn.Sequential(
        *conv_norm(inputs, narrow, 1, norm),
        nn.ReLU(inplace=True),
        *conv_norm(narrow, narrow, 3, norm, stride),
        nn.ReLU(inplace=True),
        *conv_norm(narrow, outputs, 1, norm),
    )
    return Residual(body, inputs, outputs, stride, norm)


Block = Callable[[int, int, int, Norm], Residual]


def _resnet(
    block: Block, stem: int, widths: Sequence[int], depths: Sequence[int], channels: int, norm: Norm
) -> Encoder:
    """A stem and one stage per width; every stage except the first halves the image side."""
    first = (*conv_norm(channels, stem, 3, norm), nn.ReLU(inplace=True))
    stages: dict[str, nn.Module] = {"stem": nn.Sequential(*first)}
    inputs = stem
    for number, (outputs, depth) in enumerate(zip(widths, depths, strict=True), start=1):
        entry = block(inputs, outputs, 1 if number == 1 else 2, norm)
        rest = [block(outputs, outputs, 1, norm) for _ in range(depth - 1)]
        stages[f"stage{number}"] = nn.Sequential(entry, *rest)
        inputs = outputs
    return Encoder(stages, width=inputs, never_negative=True)


@backbones.register("resnet10")
def resnet10(channels: int, norm: Norm) -> Encoder:
    """A ResNet with one basic block per stage and a quarter of the usual widths, for laptops."""
    return _resnet(basic, 16, (16, 32, 64, 128), (1, 1, 1, 1), channels, norm)


@backbones.register("resnet10-narrow")
def resnet10_narrow(channels: int, norm: Norm) -> Encoder:
    """A resnet10 with half of its widths, about three times as fast."""
    return _resnet(basic, 8, (8, 16, 32, 64), (1, 1, 1, 1), channels, norm)


@backbones.register("resnet18")
def resnet18(channels: int, norm: Norm) -> Encoder:
    return _resnet(basic, 64, (64, 128, 256, 512), (2, 2, 2, 2), channels, norm)


@backbones.register("resnet50")
def resnet50(channels: int, norm: Norm) -> Encoder:
    return _resnet(bottleneck, 64, (256, 512, 1024, 2048), (3, 4, 6, 3), channels, norm)
