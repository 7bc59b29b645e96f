"""Heads, which map features to logits. The default head holds learnable class prototypes."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from accord.core.registry import Registry


class Head(nn.Module, ABC):
    """A map from features (N, d) to logits (N, C); `prototypes` is its (C, d) matrix."""

    prototypes: nn.Parameter

    @abstractmethod
    def __init__(self, width: int, classes: int) -> None:
        super().__init__()

    @abstractmethod
    def initialise(self, generator: torch.Generator) -> None: ...


heads: Registry[type[Head]] = Registry("head")


@heads.register("prototypes")
class PrototypeHead(Head):
    """Logits = z Pᵀ with z = f/‖f‖₂; P starts as N(0, 1), the same at every client (FAFI)."""

    def __init__(self, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        self.prototypes = nn.Parameter(torch.empty(classes, width))

    def initialise(self, generator: torch.Generator) -> None:
        nn.init.normal_(self.prototypes, generator=generator)

    def forward(self, features: Tensor) -> Tensor:
        return F.normalize(features, dim=1) @ self.prototypes.T


ANCHOR_TEMPERATURE = 0.1


@heads.register("anchors")
class AnchorHead(PrototypeHead):
    """Logits = z Aᵀ/τ: the prototypes are the briefing's anchors, and they are not trained.

    Anchors have unit length and cannot grow as prototypes do. τ = 0.1 gives the scores a scale at
    which a softmax can be confident. Recipes with this head train with the same temperature.
    """

    def __init__(self, width: int, classes: int) -> None:
        super().__init__(width, classes)
        self.prototypes.requires_grad_(False)

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(features) / ANCHOR_TEMPERATURE


@heads.register("linear")
class LinearHead(Head):
    """Logits = f Wᵀ + b: the usual classifier."""

    def __init__(self, width: int, classes: int) -> None:
        nn.Module.__init__(self)
        self.prototypes = nn.Parameter(torch.empty(classes, width))
        self.bias = nn.Parameter(torch.empty(classes))

    def initialise(self, generator: torch.Generator) -> None:
        bound = 1 / math.sqrt(self.prototypes.shape[1])
        nn.init.uniform_(self.prototypes, -bound, bound, generator=generator)
        nn.init.zeros_(self.bias)

    def forward(self, features: Tensor) -> Tensor:
        return features @ self.prototypes.T + self.bias
