"""The interface of a block of fixed features, and the inputs from which the server draws it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal, Self

import torch
from pydantic import Field
from torch import Tensor, nn

from accord.core.config import Config
from accord.core.registry import Registry
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.nets.settings import NetConfig


@dataclass(frozen=True)
class Earlier:
    """The encoders of an earlier recipe's last round, and their normalisation of images."""

    merged: dict[str, Tensor]  # of the net that its fusion made
    head: dict[str, Tensor]  # of this net
    clients: tuple[dict[str, Tensor], ...]  # of each client's own net; empty if no block needs them
    mean: tuple[float, ...]
    std: tuple[float, ...]


@dataclass(frozen=True)
class Origins:
    """The inputs from which the server draws the values of a map."""

    seed: int
    public: ImageSet  # may be empty
    mean: tuple[float, ...]
    std: tuple[float, ...]
    teachers: tuple[dict[str, Tensor], ...] = ()  # weights of encoders trained on the public images
    earlier: Earlier | None = None  # of the recipe that the map's recipe stands on

    def images(self, positions: Tensor) -> Tensor:
        """Public images, normalised as nets expect them."""
        return normalise(self.public.batch(positions), self.mean, self.std)


@dataclass(frozen=True)
class Around:
    """What a block must know of its study."""

    net: NetConfig
    side: int  # the shorter side of an image
    clients: int = 1
    classes: int = 2
    below: dict[str, Any] | None = None  # the settled map of the recipe that it stands on, if any


@dataclass(frozen=True)
class Limits:
    """What features of any image can be: low_j ≤ φ_j ≤ high_j, and ‖φ‖₂ ≤ norm."""

    low: Tensor
    high: Tensor
    norm: float

    @classmethod
    def none(cls, width: int) -> Limits:
        return cls(torch.full((width,), -torch.inf), torch.full((width,), torch.inf), torch.inf)


class BlockModule(nn.Module, ABC):
    """Normalised images (N, C, H, W) → features (N, width), computed for each image separately."""

    width: int

    @abstractmethod
    def forward(self, images: Tensor) -> Tensor: ...

    def limits(self, pixels: Tensor) -> Limits:  # noqa: ARG002 - not every block knows its limits
        """Limits of the features of images whose pixels are not larger than `pixels`.

        The server refuses sums that go beyond them.
        """
        return Limits.none(self.width)


class Block(Config, ABC):
    """The parameters of a block of fixed features."""

    weight: float = Field(1.0, ge=1e-6, le=1e6, description="factor of this block's features")

    @abstractmethod
    def build(self, channels: int) -> BlockModule:
        """The module of the block, without values."""

    @abstractmethod
    def draw(self, channels: int, origins: Origins, index: int = 0) -> dict[str, Tensor]:
        """The block's values, which depend on `origins` and on its `index` in the map alone."""

    def settled(self, around: Around) -> Self:  # noqa: ARG002
        """A copy with all settings that a client needs."""
        return self

    def sent(self) -> Self:
        """A copy with what clients may know, for a message."""
        return self

    @property
    def needs_public(self) -> bool:
        return False

    @property
    def asks_teachers(self) -> int:
        """The number of nets that the server must train for this block."""
        return 0

    @property
    def stands_on(self) -> str | None:
        """The recipe whose net this block needs; None for most blocks."""
        return None

    @property
    def below(self) -> Literal["nets", "sums"]:
        """What the clients of that recipe must upload."""
        return "nets"

    @property
    def needs_clients(self) -> bool:
        """Whether the block needs the net of each client of that recipe."""
        return False


blocks: Registry[type[Block]] = Registry("block", "accord.nets.maps")


def pooling(height: int, width: int, cells: int) -> Tensor:
    """(H·W, cells²): a matrix whose columns each average one window of a grid."""
    down, across = (_windows(side, cells) for side in (height, width))
    return torch.einsum("ia,jb->ijab", down, across).reshape(height * width, cells * cells)


def _windows(side: int, cells: int) -> Tensor:
    """(side, cells): windows from one edge to the other that overlap by half."""
    size = max(1, 2 * side // (cells + 1))
    columns = torch.zeros(side, cells)
    for cell in range(cells):
        start = cell * (side - size) // max(cells - 1, 1)
        columns[start : start + size, cell] = 1 / size
    return columns
