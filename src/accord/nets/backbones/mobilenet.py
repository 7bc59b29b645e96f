"""MobileNetV2 for small images, after Sandler et al., arXiv:1801.04381."""

from __future__ import annotations

from torch import Tensor, nn

from accord.nets.backbones.base import Encoder, backbones
from accord.nets.backbones.layers import Norm, conv_norm

# Expansion, output channels, blocks and first stride of each stage, as in table 2 of the paper, but
# with stride 1 in the stem and in stage 2, as is usual for 32×32 images.
STAGES = (
    (1, 16, 1, 1),
    (6, 24, 2, 1),
    (6, 32, 3, 2),
    (6, 64, 4, 2),
    (6, 96, 3, 1),
    (6, 160, 3, 2),
    (6, 320, 1, 1),
)


class InvertedResidual(nn.Module):
    """1×1 convolution that expands, 3×3 depthwise, 1×1 that reduces; plus x if shapes are equal."""

    def __init__(self, inputs: int, outputs: int, expansion: int, stride: int, norm: Norm) -> None:
        super().__init__()
        wide = inputs * expansion
        expand = () if expansion == 1 else _conv_norm_relu6(inputs, wide, 1, norm)
        self.body = nn.Sequential(
            *expand,
            *_conv_norm_relu6(wide, wide, 3, norm, stride, groups=wide),
            *conv_norm(wide, outputs, 1, norm),
        )
        self.adds = inputs == outputs and stride == 1

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.body(x)
        return out.add_(x) if self.adds else out


def _conv_norm_relu6(
    inputs: int, outputs: int, kernel: int, norm: Norm, stride: int = 1, groups: int = 1
) -> tuple[nn.Module, ...]:
    return (*conv_norm(inputs, outputs, kernel, norm, stride, groups), nn.ReLU6(inplace=True))


@backbones.register("mobilenetv2")
def mobilenetv2(channels: int, norm: Norm) -> Encoder:
    stages: dict[str, nn.Module] = {"stem": nn.Sequential(*_conv_norm_relu6(channels, 32, 3, norm))}
    inputs = 32
    for number, (expansion, outputs, depth, stride) in enumerate(STAGES, start=1):
        blocks = []
        for index in range(depth):
            first_stride = stride if index == 0 else 1
            blocks.append(InvertedResidual(inputs, outputs, expansion, first_stride, norm))
            inputs = outputs
        stages[f"stage{number}"] = nn.Sequential(*blocks)
    stages["head"] = nn.Sequential(*_conv_norm_relu6(inputs, 1280, 1, norm))
    return Encoder(stages, width=1280, never_negative=True)
