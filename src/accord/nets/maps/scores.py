"""The scores of an earlier closed form as features, so that new features fit what it has left."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.views import renormalising
from accord.messages import unprefixed
from accord.messages.saved_model import SavedModel
from accord.nets.maps.base import Around, Block, BlockModule, Origins, blocks
from accord.nets.maps.feature_map import FeatureMap, MapConfig
from accord.nets.maps.kept import InModel


class ScoresOf(Block):
    """ln p(c | x) of a closed form, one feature for each class.

    Together with new patches they are the next step of a boosting: the ridge regression keeps the
    earlier scores, which are linear in the earlier features, and fits the rest with the new ones.
    """

    classes: int | None = Field(None, description="is set automatically; do not set it")
    map: dict[str, Any] | None = Field(None, description="is set automatically; do not set it")

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
        seen = origins, found.mean, found.std
        return _values(found.merged, found.head, *seen)


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
        inner = _unmirrored(found.header.net.map or {})
        return {"classes": len(found.header.classes), "map": inner}

    def taken_from(self, found: SavedModel) -> dict[str, Tensor]:
        return found.weights(0)

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:  # noqa: ARG002
        found, tensors = self.taken(channels)
        head = unprefixed("head.", tensors)
        seen = origins, found.header.mean, found.header.std
        return _values(unprefixed("encoder.", tensors), head, *seen)


def _unmirrored(inner: dict[str, Any]) -> dict[str, Any]:
    """The map without its own mirrored images, if its scores are linear in its features.

    The outer map averages the scores of both images, which is the same and costs half.
    """
    return inner if inner["landmarks"] else {**inner, "mirror": False}


def _values(
    inner: dict[str, Tensor],
    head: dict[str, Tensor],
    origins: Origins,
    mean: Sequence[float],
    std: Sequence[float],
) -> dict[str, Tensor]:
    """The tensors of a ScoresModule, for a map and a head that see images with mean and std."""
    scale, shift = renormalising(origins.mean, origins.std, mean, std)
    named = {f"map.{name}": tensor for name, tensor in inner.items()}
    kept = {name: head[name] for name in ("prototypes", "bias")}
    return {**named, **kept, "scale": scale, "shift": shift}


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
