"""The scores of an earlier closed form as features, so that new features fit what it has left."""

from __future__ import annotations

import math
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.core.parts import AUTOMATIC
from accord.data.views import renormalising
from accord.messages import unprefixed
from accord.messages.saved_model import SavedModel
from accord.nets.maps.base import Around, Block, BlockModule, Limits, Origins, blocks
from accord.nets.maps.feature_map import FeatureMap, MapConfig
from accord.nets.maps.kept import InModel


class ScoresOf(Block):
    """ln p(c | x) of a closed form, one feature for each class.

    Together with new patches they are the next step of a boosting: the ridge regression keeps the
    earlier scores, which are linear in the earlier features, and fits the rest with the new ones.
    """

    classes: int | None = Field(None, description=AUTOMATIC)
    map: dict[str, Any] | None = Field(None, description=AUTOMATIC)

    def build(self, channels: int) -> ScoresModule:
        if self.map is None or self.classes is None:
            raise ValueError("the earlier map is not known yet")
        return ScoresModule(MapConfig.model_validate(self.map), channels, self.classes)


@blocks.register("scores")
class Scores(ScoresOf):
    """The scores of the closed form of another recipe of the study."""

    recipe: str = Field(min_length=1, description="the recipe with the earlier closed form")

    @property
    def stands_on(self) -> str | None:
        return self.recipe

    @property
    def below(self) -> Literal["nets", "sums"]:
        return "sums"

    def settled(self, around: Around) -> Self:
        inner = None if around.below is None else _unmirrored(around.below)
        return self.model_copy(update={"classes": around.classes, "map": inner})

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:  # noqa: ARG002
        found = origins.earlier
        if found is None:
            raise ValueError(f"expected the closed form of {self.recipe}; found none")
        scale, shift = renormalising(origins.mean, origins.std, found.mean, found.std)
        return {**_named(found.merged, found.head), "scale": scale, "shift": shift}


@blocks.register("kept-scores")
class KeptScores(InModel, ScoresOf):
    """The scores of a closed form in a model that `accord fuse --save` wrote."""

    def refuse(self, found: SavedModel) -> None:
        if found.header.net.map is None:
            raise AccordError(
                f"kept-scores: expected a model of a closed form; {self.model} holds trained nets. "
                "Use the block encoder for them."
            )

    def told_by(self, found: SavedModel) -> dict[str, object]:
        described = parse(MapConfig, found.header.net.map, f"{found.folder}: net.map")
        inner = _unmirrored(described.model_dump(mode="json"))
        return {"classes": len(found.header.classes), "map": inner}

    @property
    def told(self) -> bool:
        return self.map is not None and self.classes is not None

    def taken_from(self, found: SavedModel) -> dict[str, Tensor]:
        return found.weights(0)

    def named(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        return _named(unprefixed("encoder.", tensors), unprefixed("head.", tensors))

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:  # noqa: ARG002
        found, tensors = self.taken(channels)
        seen = found.header.mean, found.header.std
        scale, shift = renormalising(origins.mean, origins.std, *seen)
        return {**self.named(tensors), "scale": scale, "shift": shift}


def _unmirrored(inner: dict[str, Any]) -> dict[str, Any]:
    """The map without its own mirrored images, if its scores are linear in its features.

    The outer map averages the scores of both images, which is the same and costs half.
    """
    return inner if inner["landmarks"] else {**inner, "mirror": False}


def _named(inner: dict[str, Tensor], head: dict[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of a map and of its head under the names of a ScoresModule."""
    return {**{f"map.{name}": tensor for name, tensor in inner.items()}, **head}


class ScoresModule(BlockModule):
    prototypes: Tensor
    bias: Tensor
    scale: Tensor
    shift: Tensor

    def __init__(self, config: MapConfig, channels: int, classes: int) -> None:
        super().__init__()
        self.map = FeatureMap(config, channels)
        self.width = classes
        self.register_buffer("prototypes", torch.empty(classes, self.map.width))
        self.register_buffer("bias", torch.empty(classes))
        self.register_buffer("scale", torch.empty(channels))
        self.register_buffer("shift", torch.empty(channels))

    def forward(self, images: Tensor) -> Tensor:
        seen = images * self.scale[:, None, None] + self.shift[:, None, None]
        features: Tensor = self.map(seen)
        return features @ self.prototypes.T + self.bias

    def limits(self, pixels: Tensor) -> Limits:
        """W has the same inputs for every class: Σ_j max(W_cj l_j, W_cj h_j), at most ‖W_c‖‖φ‖."""
        seen = pixels * self.scale.abs()[:, None, None] + self.shift.abs()[:, None, None]
        inner, W, b = self.map.limits(seen), self.prototypes.double(), self.bias.double()
        if not math.isfinite(inner.norm):
            return Limits.none(self.width)
        ends = W * inner.low, W * inner.high
        length = W.norm(dim=1) * inner.norm
        low = b + torch.maximum(torch.minimum(*ends).sum(dim=1), -length)
        high = b + torch.minimum(torch.maximum(*ends).sum(dim=1), length)
        return Limits(low, high, float(torch.maximum(low.abs(), high.abs()).norm()))
