"""The net of a client: an encoder, or a map of fixed features in its place, and a head."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError
from accord.core.text import one_line
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


def _refuse_misfit(
    header: NetHeader, channels: int, classes: int, weights: dict[str, Tensor]
) -> None:
    """Raises AccordError if the weights are not those of the net, before memory is used for it."""
    expected = shapes_of(header.model_dump_json(), channels, classes)
    for name in sorted(expected.keys() | weights.keys()):
        wanted = expected.get(name, "no such tensor")
        found = tuple(weights[name].shape) if name in weights else "none"
        if wanted != found:
            raise AccordError(
                f"the weights do not fit the net: {name[:100]!r} should be {wanted}, found {found}."
            )


@lru_cache(maxsize=16)
def shapes_of(header: str, channels: int, classes: int) -> dict[str, tuple[int, ...]]:
    """Name → shape of each tensor of the net that a header (JSON) describes; it needs no memory."""
    try:
        with torch.device("meta"):
            net = Net(NetHeader.model_validate_json(header), channels, classes)
    except (RuntimeError, ValueError, TypeError, OverflowError, KeyError) as error:
        said = one_line(str(error), 200)
        raise AccordError(f"the net cannot be built: {said}. Its description is damaged.") from None
    return {name: tuple(tensor.shape) for name, tensor in net.state_dict().items()}


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
    """A net with the given weights and buffers. Nothing is built if they do not fit."""
    _refuse_misfit(header, channels, classes, weights)
    net = Net(header, channels, classes)
    net.load_state_dict(weights)
    return net
