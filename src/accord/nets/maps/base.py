"""Blocks of fixed features: what a map can be made of, and what the server draws it from."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Self

import torch
from pydantic import Field
from torch import Tensor, nn

from accord.core.config import Config
from accord.core.registry import Registry
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.nets.settings import NetConfig


@dataclass(frozen=True)
class Origins:
    """What a server has when it draws the values of a map."""

    seed: int
    public: ImageSet  # may be empty
    mean: tuple[float, ...]
    std: tuple[float, ...]
    teachers: tuple[dict[str, Tensor], ...] = ()  # weights of encoders trained on them

    def images(self, positions: Tensor) -> Tensor:
        """Public images as nets see them."""
        return normalise(self.public.batch(positions), self.mean, self.std)


class BlockModule(nn.Module, ABC):
    """Images (N, C, H, W), normalised → (N, width); an image's features depend on no other's."""

    width: int

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor: ...


class Block(Config, ABC):
    """The parameters of some fixed features."""

    weight: float = Field(1.0, gt=0, description="times its features, beside other blocks")

    @abstractmethod
    def build(self, channels: int) -> BlockModule:
        """The block without values."""

    @abstractmethod
    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:
        """Its values: the same for the same origins, and others for the next block of its kind."""

    def settled(self, net: NetConfig, side: int) -> Self:  # noqa: ARG002
        """With all that a client needs to build it, for such a net and images of such a side."""
        return self

    @property
    def needs_public(self) -> bool:
        return False

    @property
    def asks_teachers(self) -> int:
        """How many nets the server has to train for it."""
        return 0


blocks: Registry[type[Block]] = Registry("block", "accord.nets.maps")


def pooling(height: int, width: int, cells: int) -> Tensor:
    """(H·W, cells²): each column averages one window of a grid."""
    down, across = (_windows(side, cells) for side in (height, width))
    return torch.einsum("ia,jb->ijab", down, across).reshape(height * width, cells * cells)


def _windows(side: int, cells: int) -> Tensor:
    """(side, cells): half-overlapping windows from one edge to the other."""
    size = max(1, 2 * side // (cells + 1))
    columns = torch.zeros(side, cells)
    for cell in range(cells):
        start = cell * (side - size) // max(cells - 1, 1)
        columns[start : start + size, cell] = 1 / size
    return columns
