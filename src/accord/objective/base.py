"""What a loss term sees of a step, and the families of terms and anchors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.config import Config
from accord.registry import Registry


@dataclass(frozen=True)
class Batch:
    """One step: V views of B images, stacked view by view.

    `features` f is (V·B, d), `logits` (V·B, C), `labels` y (V·B). `prototypes` P is (C, d), the
    head's weight; `anchors` A is (C, d) or None; `held` marks the classes the client has.
    """

    features: Tensor
    logits: Tensor
    labels: Tensor
    prototypes: Tensor
    held: Tensor
    anchors: Tensor | None = None

    @cached_property
    def directions(self) -> Tensor:
        """z = f / ‖f‖₂."""
        return F.normalize(self.features, dim=1)


class Term(Config, ABC):
    """A loss term: its fields are its parameters, calling it gives a scalar."""

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor: ...


class Anchors(Config, ABC):
    """A rule that makes the (C, d) anchor matrix of a briefing."""

    @abstractmethod
    def make(self, classes: int, width: int, generator: torch.Generator) -> Tensor: ...


terms: Registry[type[Term]] = Registry("term", "accord.objective")
anchor_kinds: Registry[type[Anchors]] = Registry("anchors", "accord.objective")
