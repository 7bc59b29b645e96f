"""φ: concatenated blocks of fixed features, averaged with the mirrored image, and a kernel."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal, Self

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor, nn

from accord.core.budget import MOST_EPOCHS
from accord.core.config import Config
from accord.core.parts import make_part, part_spec
from accord.core.randomness import torch_generator
from accord.nets.maps.base import Around, Block, BlockModule, Limits, Origins, blocks
from accord.nets.maps.nystrom import Nystrom, draw_nystrom

PUBLIC_BATCH = 256


class MapConfig(Config):
    """A map φ from images to features that is not trained."""

    blocks: tuple[dict[str, Any], ...] = Field(
        ({"use": "patches"},),
        min_length=1,
        max_length=100,
        validate_default=True,
        description="blocks of features that are concatenated",
    )
    mirror: bool | None = Field(
        None,
        description="average the features with those of the mirrored image; null means yes if the "
        "dataset allows flips",
    )
    landmarks: int = Field(
        0,
        ge=0,
        le=1_000_000,
        description="m, the number of public images as landmarks of a Gaussian kernel; 0 means no "
        "kernel",
    )
    gamma: float = Field(
        0.3,
        ge=1e-6,
        le=100,
        description="γ of the kernel, at a mean squared distance of 1 between images",
    )
    teacher_epochs: int | None = Field(
        None,
        ge=1,
        le=MOST_EPOCHS,
        description="training epochs of a teacher on the public images; null means those of the "
        "recipe public-teacher",
    )

    @field_validator("blocks", mode="before")
    @classmethod
    def _in_full(cls, value: Any) -> Any:
        entries = value if isinstance(value, list | tuple) else [value]
        found = []
        for index, entry in enumerate(entries):
            part = make_part(blocks, entry, f"map.blocks[{index}]")
            found.append(part_spec(entry if isinstance(entry, str) else entry["use"], part))
        return found

    @model_validator(mode="after")
    def _nothing_idle(self) -> Self:
        plain = type(self).model_fields
        if not self.landmarks and self.gamma != plain["gamma"].default:
            raise ValueError(
                f"`gamma` has an effect only with `landmarks`; found gamma {self.gamma:g} and 0 "
                "landmarks. Set landmarks, or remove gamma"
            )
        named = {part.stands_on for part in self.parts if part.stands_on}
        if len(named) > 1:
            raise ValueError(
                f"a map can stand on one other recipe; found {', '.join(sorted(named))}. Name the "
                "same recipe in all blocks `rounds`"
            )
        if len({part.below for part in self.parts if part.stands_on}) > 1:
            raise ValueError(
                "a block `rounds` needs a recipe whose clients train nets, and a block `scores` "
                "one whose clients send sums; found both in one map. Remove one of them"
            )
        if not self.teachers and self.teacher_epochs is not None:
            raise ValueError(
                "`teacher_epochs` has an effect only with a block `teacher`; found "
                f"{self.teacher_epochs} and no such block. Add the block, or remove teacher_epochs"
            )
        return self

    @property
    def parts(self) -> list[Block]:
        return [make_part(blocks, spec, "blocks") for spec in self.blocks]

    @property
    def needs_public(self) -> bool:
        return bool(self.landmarks) or any(part.needs_public for part in self.parts)

    @property
    def teachers(self) -> int:
        """The number of nets that the server must train on its public images."""
        return max(part.asks_teachers for part in self.parts)

    @property
    def stands_on(self) -> str | None:
        """The recipe whose net the map needs; None for most maps."""
        return next((part.stands_on for part in self.parts if part.stands_on), None)

    def width(self, channels: int) -> int:
        """d, the number of features."""
        return self.landmarks or sum(part.build(channels).width for part in self.parts)

    @property
    def below(self) -> Literal["nets", "sums"]:
        """What the clients of the recipe that it stands on must upload."""
        return next((part.below for part in self.parts if part.stands_on), "nets")

    def settled(self, around: Around, flips: bool) -> Self:
        """A copy with all settings that a client needs; `flips`: mirrored images are alike."""
        mirror = flips if self.mirror is None else self.mirror
        return self._each(lambda part: part.settled(around), mirror=mirror)

    def sent(self) -> Self:
        """A copy with what clients may know, for a message."""
        return self._each(lambda part: part.sent())

    def _each(self, change: Callable[[Block], Block], **more: Any) -> Self:
        parts = zip(self.blocks, self.parts, strict=True)
        found = tuple(part_spec(spec["use"], change(part)) for spec, part in parts)
        return self.model_copy(update={"blocks": found, **more})


class FeatureMap(nn.Module):
    """The module of φ, which takes the place of a net's encoder."""

    def __init__(self, config: MapConfig, channels: int) -> None:
        super().__init__()
        self.mirror = config.mirror
        parts = config.parts
        built = [part.build(channels) for part in parts]
        self.blocks = nn.ModuleList(built)
        self.weights = [part.weight for part in parts]
        self.widths = [block.width for block in built]
        inputs = sum(self.widths)
        self.kernel = None
        if config.landmarks:
            self.kernel = Nystrom(inputs, config.landmarks, config.gamma)
        self.width = config.landmarks or inputs

    def forward(self, images: Tensor) -> Tensor:
        found = self.side_by_side(images)
        if self.kernel is not None:
            found = self.kernel(found)
        return found

    def side_by_side(self, images: Tensor) -> Tensor:
        found = self._blocks(images)
        return (found + self._blocks(images.flip(3))) / 2 if self.mirror else found

    def limits(self, pixels: Tensor) -> Limits:
        """Limits of φ of every image whose pixels are not larger than `pixels`."""
        if self.kernel is not None:
            return self.kernel.limits()
        found = []
        for block, weight in zip(self.blocks, self.weights, strict=True):
            assert isinstance(block, BlockModule)
            one = block.limits(pixels)
            found.append(Limits(one.low * weight, one.high * weight, one.norm * weight))
        low = torch.cat([one.low.double() for one in found])
        high = torch.cat([one.high.double() for one in found])
        return Limits(low, high, math.hypot(*(one.norm for one in found)))

    def _blocks(self, images: Tensor) -> Tensor:
        weighted = zip(self.blocks, self.weights, strict=True)
        return torch.cat([block(images) * weight for block, weight in weighted], dim=1)


def made_up(config: MapConfig, channels: int) -> dict[str, Tensor]:
    """Zeros of the right shapes, which are made quickly, for checks and time measurements only."""
    shapes = FeatureMap(config, channels).state_dict()
    return {name: torch.zeros_like(tensor) for name, tensor in shapes.items()}


def draw_map(config: MapConfig, channels: int, origins: Origins) -> dict[str, Tensor]:
    """The values of a FeatureMap, from the seed, the public images and the teachers alone."""
    found = FeatureMap(config, channels).eval()
    for index, (block, part) in enumerate(zip(found.blocks, config.parts, strict=True)):
        block.load_state_dict(part.draw(channels, origins, index))
    if found.kernel is not None:
        everyone = torch.arange(len(origins.public))
        with torch.inference_mode():
            features = torch.cat(
                [
                    found.side_by_side(origins.images(some))
                    for some in torch.split(everyone, PUBLIC_BATCH)
                ]
            )
        # The influence of a block depends on its weight and not on its number of features.
        weights = torch.cat(
            [
                torch.full((width,), weight / width**0.5)
                for width, weight in zip(found.widths, found.weights, strict=True)
            ]
        )
        draws = torch_generator(origins.seed, "landmarks")
        values = draw_nystrom(
            features, weights, config.landmarks, config.gamma, draws, found.widths
        )
        found.kernel.load_state_dict(values)
    return found.state_dict()
