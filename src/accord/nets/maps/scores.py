"""The scores of an earlier closed form as features, so that new features fit what it has left."""

from __future__ import annotations

from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor

from accord.data.views import renormalising
from accord.nets.maps.base import Around, Block, BlockModule, Origins, blocks
from accord.nets.maps.feature_map import FeatureMap, MapConfig


@blocks.register("scores")
class Scores(Block):
    """ln p(c | x) of the closed form of another recipe, one feature for each class.

    Together with new patches they are the next step of a boosting: the ridge regression keeps the
    earlier scores, which are linear in the earlier features, and fits the rest with the new ones.
    """

    recipe: str = Field(min_length=1, description="the recipe with the earlier closed form")
    classes: int | None = Field(None, description="is set automatically; do not set it")
    map: dict[str, Any] | None = Field(None, description="is set automatically; do not set it")

    @property
    def stands_on(self) -> str:
        return self.recipe

    @property
    def below(self) -> Literal["nets", "sums"]:
        return "sums"

    def settled(self, around: Around) -> Self:
        inner = around.below
        if inner is not None and not inner["landmarks"]:
            # Its scores are linear in its features, and the outer map averages mirrored images.
            inner = {**inner, "mirror": False}
        return self.model_copy(update={"classes": around.classes, "map": inner})

    def build(self, channels: int) -> ScoresModule:
        if self.map is None or self.classes is None:
            raise ValueError("the earlier map is not known yet")
        return ScoresModule(MapConfig.model_validate(self.map), channels, self.classes)

    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:  # noqa: ARG002
        found = origins.earlier
        if found is None:
            raise ValueError(f"expected the closed form of {self.recipe}; found none")
        scale, shift = renormalising(origins.mean, origins.std, found.mean, found.std)
        inner = {f"map.{name}": tensor for name, tensor in found.merged.items()}
        head = {"prototypes": found.head["prototypes"], "bias": found.head["bias"]}
        return {**inner, **head, "scale": scale, "shift": shift}


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
