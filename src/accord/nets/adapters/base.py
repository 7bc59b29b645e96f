"""The interface of an adapter, which maps a layer of the student and one of the teacher to a layer.

Li et al., MergeNet: Knowledge Migration across Heterogeneous Models, Tasks, and Modalities (2024),
arXiv:2404.13322.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from accord.core.mergenet import MergeNetConfig
from accord.core.registry import Registry
from accord.nets.initialise import initialise

Size = tuple[int, int]  # rows and columns of a matrix
TINY = 1e-12  # keeps a layer of zeros from being divided by 0


class Adapter(nn.Module, ABC):
    """A map (X, Y) → X̂ of matrices; X̂ has the shape of X, the student's layer.

    It is built without values and draws no random numbers; `initialise` sets its values.
    """

    uses_teacher: ClassVar[bool] = True
    fresh: ClassVar[bool] = False  # whether every fusion begins with initial values

    @abstractmethod
    def __init__(self, student: Size, teacher: Size, config: MergeNetConfig) -> None:
        super().__init__()

    @abstractmethod
    def forward(self, x: Tensor, y: Tensor) -> Tensor: ...

    def initialise(self, generator: torch.Generator) -> None:
        initialise(self, generator)


adapters: Registry[type[Adapter]] = Registry("adapter", "accord.nets.adapters")


def rms(x: Tensor) -> Tensor:
    """√mean(x²)."""
    return x.square().mean().sqrt().clamp(min=TINY)


def attend(queries: Tensor, keys: Tensor, values: Tensor, heads: int) -> Tensor:
    """softmax(q kᵀ/√d_h) v for each head; the rows of the heads are concatenated again."""

    def split(rows: Tensor) -> Tensor:
        return rows.reshape(len(rows), heads, -1).transpose(0, 1)

    q, k, v = split(queries), split(keys), split(values)
    scores: Tensor = q @ k.transpose(1, 2) / q.shape[2] ** 0.5
    return (scores.softmax(dim=2) @ v).transpose(0, 1).flatten(1)
