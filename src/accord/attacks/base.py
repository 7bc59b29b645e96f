"""The interface of an attack: what a hostile client does, and all else stays as it is.

A hostile client follows the protocol. Its message has the right form, and its statistics fit the
net or the sums that it sends, so that checks of single numbers do not find it.
"""

from __future__ import annotations

from abc import ABC
from dataclasses import dataclass
from typing import ClassVar

import torch
from numpy.random import Generator
from torch import Tensor

from accord.core.registry import Registry

Tensors = dict[str, Tensor]
Sums = tuple[Tensor, Tensor, Tensor]  # counts (C), sums of φ (C, d), scatter about the mean (d, d)


@dataclass(frozen=True)
class Attack(ABC):
    """One attack; `strength` is a factor or an amount, with a meaning of its own."""

    strength: float

    default: ClassVar[float] = 1.0  # the strength if the study gives none
    copies: ClassVar[bool] = False  # the client uses the images of another client

    def counts(self, counts: Tensor) -> Tensor:
        """The numbers of images of each class (C) that the client announces and sends."""
        return counts

    def labels(self, labels: Tensor, classes: int, rng: Generator, *, sums: bool) -> Tensor:  # noqa: ARG002
        """The labels that the client works with; `sums` says that it sends no net."""
        return labels

    def weights(self, trained: Tensors, start: Tensors, draws: torch.Generator) -> Tensors:  # noqa: ARG002
        """The weights that the client sends; `start` are those that it began with.

        Only learnt weights are given, no running statistics of batch norms.
        """
        return trained

    def sums(self, sums: Sums, draws: torch.Generator) -> Sums:  # noqa: ARG002
        """The sums that the client sends, in float64. Its counts are changed by `counts` alone."""
        return sums


attacks: Registry[type[Attack]] = Registry("attack", "accord.attacks")


def make_attack(name: str, strength: float | None) -> Attack:
    kind = attacks.get(name)
    return kind(kind.default if strength is None else strength)
