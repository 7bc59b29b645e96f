"""The net of a client: an encoder, or a map of fixed features in its place, and a head."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accord.messages import NetHeader
from accord.nets.backbones import Encoder, build_encoder
from accord.nets.heads import heads
from accord.nets.initialise import initialise
from accord.nets.maps import FeatureMap, MapConfig


class Net(nn.Module):
    """f = encoder(x), logits = head(f). It is built without values and draws no random numbers."""

    def __init__(self, header: NetHeader, channels: int, classes: int) -> None:
        super().__init__()
        self.encoder: Encoder | FeatureMap = (
            build_encoder(header.backbone, channels, header.norm)
            if header.map is None
            else FeatureMap(MapConfig.model_validate(header.map), channels)
        )
        self.head = heads.get(header.head)(self.encoder.width, classes)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor]:
        features = self.encoder(images)
        return features, self.head(features)


def fresh_net(header: NetHeader, channels: int, classes: int, generator: torch.Generator) -> Net:
    """A net with initial weights that are drawn from `generator` alone."""
    net = Net(header, channels, classes)
    initialise(net.encoder, generator)
    net.head.initialise(generator)
    return net


def net_with_map(
    header: NetHeader,
    channels: int,
    classes: int,
    values: dict[str, Tensor],
    generator: torch.Generator,
) -> Net:
    """A net of fixed features with these values and a head with initial weights."""
    net = Net(header, channels, classes)
    net.encoder.load_state_dict(values)
    net.head.initialise(generator)
    return net


def loaded_net(header: NetHeader, channels: int, classes: int, weights: dict[str, Tensor]) -> Net:
    """A net with the given weights and buffers."""
    net = Net(header, channels, classes)
    net.load_state_dict(weights)
    return net
