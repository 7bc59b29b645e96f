"""Digits, encoders and small maps for the tests of fixed features."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from accord.data.imageset import ImageSet
from accord.messages.saved_model import SavedModel, save_model
from accord.nets.backbones.base import Encoder, build_encoder
from accord.nets.initialise import initialise
from accord.nets.maps import Earlier, FeatureMap, MapConfig, Origins, draw_map
from tests_support import digits

SMALL = {"use": "patches", "size": 3, "count": 4, "grid": 3}
PUBLIC = {**SMALL, "source": "public"}
TEACHER = {"use": "teacher", "backbone": "conv4", "norm": "batch", "stages": 2, "grid": 4}


def noise(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@cache
def teacher(backbone: str = "conv4", channels: int = 1) -> Encoder:
    """With statistics of its own, as after training."""
    encoder = build_encoder(backbone, channels, "batch")
    initialise(encoder, torch.Generator().manual_seed(0))
    with torch.no_grad():
        encoder.train()(noise(16, channels, 16, 16))
    return encoder.eval()


def origins(
    seed: int = 0, *, channels: int = 1, side: int = 8, public: int = 40, backbone: str = "conv4"
) -> Origins:
    """Digits, in as many channels and pixels as asked for."""
    images, labels = digits()
    weights = dict(teacher(backbone, channels).state_dict())
    images = np.repeat(images[:public], channels, axis=3)
    images = images.repeat(side // 8, axis=1).repeat(side // 8, axis=2)
    return Origins(
        seed,
        ImageSet(images, np.arange(public), labels[:public]),
        (0.3,) * channels,
        (0.35,) * channels,
        (weights,),
        Earlier(weights, {}, (), (0.2,) * channels, (0.3,) * channels),
    )


def drawn(config: MapConfig, source: Origins | None = None, channels: int = 1) -> FeatureMap:
    found = FeatureMap(config, channels).eval()
    found.load_state_dict(draw_map(config, channels, source or origins(channels=channels)))
    return found


def at(found: FeatureMap, images: Tensor) -> Tensor:
    with torch.inference_mode():
        features: Tensor = found(images)
    return features


def closed_model(nets: Path) -> Path:
    """A saved model of a closed form with random scores, beside a model of trained nets."""
    folder, like = nets.with_name("closed"), SavedModel.load(nets)
    if not folder.exists():
        config = MapConfig.model_validate({"blocks": [SMALL], "mirror": False})
        values = draw_map(config, 1, origins())
        width = config.width(1)
        head = {"head.prototypes": noise(10, width), "head.bias": noise(10, seed=8)}
        net = like.header.net.model_copy(update={"map": config.model_dump(mode="json")})
        header = like.header.model_copy(update={"net": net, "nets": 1})
        weights = {**{f"encoder.{name}": tensor for name, tensor in values.items()}, **head}
        save_model(folder, header, [weights], like.combiner())
    return folder
