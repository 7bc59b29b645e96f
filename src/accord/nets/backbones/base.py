"""The registry of backbones and their common class: an encoder made of named stages."""

from __future__ import annotations

from collections.abc import Callable

from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.registry import Registry
from accord.nets.backbones.layers import Norm
from accord.nets.initialise import materialise


class Encoder(nn.Module):
    """Stages in order, followed by global average pooling: (N, C, H, W) → (N, width).

    The features are not normalised to length 1; a loss term normalises them if it needs to.
    """

    def __init__(
        self, stages: dict[str, nn.Module], width: int, *, never_negative: bool = False
    ) -> None:
        super().__init__()
        self.never_negative = never_negative  # the last stage ends with a ReLU
        self.stages = nn.Sequential()
        for name, stage in stages.items():
            self.stages.add_module(name, stage)
        self.width = width

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.stages(images)
        return features.mean(dim=(2, 3))

    def forward_stages(self, images: Tensor) -> list[Tensor]:
        """The feature map (N, channels, height, width) after each stage, in order."""
        maps = []
        features = images
        for stage in self.stages:
            features = stage(features)
            maps.append(features)
        return maps


Backbone = Callable[[int, Norm], Encoder]

backbones: Registry[Backbone] = Registry("backbone", package="accord.nets.backbones")


def build_encoder(backbone: str, channels: int, norm: Norm) -> Encoder:
    """The named encoder for images of `channels` channels, not yet initialised (all NaN).

    Give it values with `initialise(encoder, generator)` or `encoder.load_state_dict(...)`.
    """
    construct = backbones.get(backbone)
    if channels < 1:
        raise AccordError(f"images need at least 1 channel, found {channels}")
    return materialise(lambda: construct(channels, norm))
