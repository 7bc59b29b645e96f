"""Frozen encoders as fixed features: the server's teachers, or an encoder of a saved model."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from pathlib import Path
from typing import Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.core.parts import AUTOMATIC
from accord.data.views import renormalising
from accord.messages import unprefixed
from accord.messages.saved_model import SavedModel
from accord.nets.backbones.base import Encoder, build_encoder
from accord.nets.backbones.layers import Norm
from accord.nets.limits import limiting
from accord.nets.maps.base import (
    Around,
    Block,
    BlockModule,
    Earlier,
    Limits,
    Origins,
    blocks,
    pooling,
)
from accord.nets.maps.kept import InModel


class Stages(Block):
    """The last stages of an encoder, each averaged over a grid of windows."""

    stages: int = Field(
        2, ge=1, le=64, description="number of last stages of the encoder that are used"
    )
    grid: int = Field(
        4, ge=1, le=64, description="number of windows along a side; they overlap by half"
    )
    backbone: str | None = Field(None, description=AUTOMATIC)
    norm: Norm | None = Field(None, description=AUTOMATIC)

    def build(self, channels: int) -> StageModule:
        if self.backbone is None or self.norm is None:
            raise ValueError("the encoder's backbone and norm are not known yet")
        encoders = [build_encoder(self.backbone, channels, self.norm) for _ in range(self.encoders)]
        return StageModule(self, encoders, channels)

    @property
    def encoders(self) -> int:
        """The number of encoders whose features are concatenated."""
        return 1

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:  # noqa: ARG002
        scale, shift = self.seen_as(origins)
        weights = {
            f"encoders.{number}.{name}": tensor
            for number, encoder in enumerate(self.weights(origins))
            for name, tensor in encoder.items()
        }
        return {**weights, "scale": scale, "shift": shift}

    def seen_as(self, origins: Origins) -> tuple[Tensor, Tensor]:
        """(scale, shift) from the study's normalisation of images to that of the encoder."""
        return torch.ones(len(origins.mean)), torch.zeros(len(origins.mean))

    @abstractmethod
    def weights(self, origins: Origins) -> Sequence[dict[str, Tensor]]:
        """The weights of each encoder."""


class StageModule(BlockModule):
    scale: Tensor
    shift: Tensor

    def __init__(self, config: Stages, encoders: Sequence[Encoder], channels: int) -> None:
        super().__init__()
        self.config = config
        self.encoders = nn.ModuleList(encoders).requires_grad_(False)
        self.register_buffer("scale", torch.empty(channels))
        self.register_buffer("shift", torch.empty(channels))
        with torch.no_grad():
            device = next(encoders[0].parameters()).device  # meta, if only shapes are wanted
            image = torch.zeros(1, channels, 32, 32, device=device)
            maps = encoders[0].eval().forward_stages(image)
        if config.stages > len(maps):
            raise AccordError(
                f"the encoder {config.backbone} has {len(maps)} stages; found stages: "
                f"{config.stages}. Use fewer stages."
            )
        each = sum(one.shape[1] for one in maps[-config.stages :]) * config.grid**2
        self.width = len(encoders) * each

    def train(self, mode: bool = True) -> Self:  # noqa: ARG002 - always in eval mode
        return super().train(False)

    def forward(self, images: Tensor) -> Tensor:
        seen = images * self.scale[:, None, None] + self.shift[:, None, None]
        found = [
            self._pooled(one) for encoder in self.encoders for one in self._last(encoder, seen)
        ]
        return torch.cat(found, dim=1)

    def limits(self, pixels: Tensor) -> Limits:
        size = self.scale.abs()[:, None, None], self.shift.abs()[:, None, None]
        seen = pixels * size[0] + size[1]
        found = [
            self._pooled(one)
            for encoder in self.encoders
            if isinstance(encoder, Encoder)
            for one in self._last(limiting(encoder), seen)
        ]
        high = torch.cat(found, dim=1)[0].double()
        return Limits(-high, high, float(high.norm()))

    def _last(self, encoder: nn.Module, images: Tensor) -> list[Tensor]:
        if not isinstance(encoder, Encoder):
            raise TypeError(f"{type(encoder).__name__} has no stages")
        return encoder.forward_stages(images)[-self.config.stages :]

    def _pooled(self, features: Tensor) -> Tensor:
        # A feature map smaller than the grid is enlarged, so that every window has a value.
        side = max(self.config.grid, *features.shape[2:])
        if (side, side) != tuple(features.shape[2:]):
            features = F.interpolate(features, size=(side, side), mode="nearest")
        pool = pooling(side, side, self.config.grid).to(features)
        return torch.matmul(features.flatten(2), pool).flatten(1)


@blocks.register("teacher")
class Teacher(Stages):
    """Stages of the server's teachers: nets like the clients', trained on the public images."""

    teachers: int = Field(
        1, ge=1, le=100, description="number of teachers; they differ in their training batches"
    )

    @property
    def needs_public(self) -> bool:
        return True

    @property
    def asks_teachers(self) -> int:
        return self.teachers

    @property
    def encoders(self) -> int:
        return self.teachers

    def settled(self, around: Around) -> Self:
        return self.model_copy(update=_net_of(around))

    def weights(self, origins: Origins) -> Sequence[dict[str, Tensor]]:
        if len(origins.teachers) < self.teachers:
            raise ValueError(f"expected {self.teachers} teachers; found {len(origins.teachers)}")
        return origins.teachers[: self.teachers]


@blocks.register("rounds")
class Rounds(Stages):
    """Stages of nets that another recipe has trained, with the same clients, images and seed.

    They are those of the net that its fusion makes, or of each client's own net after the last
    round. For a client that did not take part in this round, the fused net is used.
    """

    recipe: str = Field(
        min_length=1, description="the recipe that trains the nets, such as public-rounds"
    )
    of: Literal["merged", "clients"] = Field(
        "merged",
        description="the net that its fusion makes, or the net of each client, which all clients "
        "then receive",
    )
    clients: int | None = Field(None, description=AUTOMATIC)

    @property
    def stands_on(self) -> str:
        return self.recipe

    @property
    def needs_clients(self) -> bool:
        return self.of == "clients"

    @property
    def encoders(self) -> int:
        return self.clients or 1 if self.of == "clients" else 1

    def settled(self, around: Around) -> Self:
        each = {"clients": around.clients} if self.of == "clients" else {}
        return self.model_copy(update={**_net_of(around), **each})

    def seen_as(self, origins: Origins) -> tuple[Tensor, Tensor]:
        found = self._earlier(origins)
        return renormalising(origins.mean, origins.std, found.mean, found.std)

    def weights(self, origins: Origins) -> Sequence[dict[str, Tensor]]:
        found = self._earlier(origins)
        if self.of == "merged":
            return [found.merged]
        absent = self.encoders - len(found.clients)
        return [*found.clients, *[found.merged] * absent]

    def _earlier(self, origins: Origins) -> Earlier:
        if origins.earlier is None:
            raise ValueError(f"expected the net of {self.recipe}; found none")
        return origins.earlier


@blocks.register("encoder")
class KeptEncoder(InModel, Stages):
    """Stages of an encoder in a model that `accord fuse --save` wrote."""

    net: int = Field(0, ge=0, description="index of the net in the model, counted from 0")

    def refuse(self, found: SavedModel) -> None:
        if found.header.net.map is not None:
            raise AccordError(
                f"encoder: the model {self.model} is a closed form and has no encoder. Use its map "
                "instead."
            )
        if self.net >= found.header.nets:
            raise AccordError(
                f"{self.model} has {found.header.nets} nets, counted from 0; found net: {self.net}."
            )

    def told_by(self, found: SavedModel) -> dict[str, object]:
        return {"backbone": found.header.net.backbone, "norm": found.header.net.norm}

    @property
    def told(self) -> bool:
        return self.backbone is not None and self.norm is not None

    def taken_from(self, found: SavedModel) -> dict[str, Tensor]:
        return unprefixed("encoder.", found.weights(self.net))

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return {f"encoders.0.{name}": tensor for name, tensor in tensors.items()}

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:
        self.taken(channels)  # refuses images of another kind before anything is computed
        return super().draw(channels, origins, index)

    def seen_as(self, origins: Origins) -> tuple[Tensor, Tensor]:
        header = SavedModel.load(Path(self.model)).header
        return renormalising(origins.mean, origins.std, header.mean, header.std)

    def weights(self, origins: Origins) -> Sequence[dict[str, Tensor]]:
        return [self.taken(len(origins.mean))[1]]


def _net_of(around: Around) -> dict[str, str]:
    """The settings of an encoder that is like the clients' nets."""
    return {"backbone": around.net.backbone, "norm": around.net.norm}
