"""Enrichment: the adapters of all pairs of layers, and the pairs that a study names."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn

from accord.core.errors import AccordError, nearest
from accord.core.mergenet import MergeNetConfig, Pair
from accord.nets.adapters.base import Adapter, Size, adapters
from accord.nets.initialise import materialise

Tensors = dict[str, Tensor]
ENDINGS = ("", ".weight", ".prototypes")  # a layer may be named without the name of its weight


class Enrichment(nn.Module):
    """Ŵ_i = A_i(W_i, Y_i) for every pair i; convolutions are matrices out × (in·k·k)."""

    def __init__(
        self,
        pairs: tuple[Pair, ...],
        student: Mapping[str, Tensor],
        teacher: Mapping[str, Tensor],
        config: MergeNetConfig,
    ) -> None:
        super().__init__()
        kind = adapters.get(config.adapter)
        self.pairs = pairs
        self.adapters = nn.ModuleList(
            materialise(
                lambda own=own, other=other: kind(  # type: ignore[misc]
                    _size(student[own]), _size(teacher[other]), config
                )
            )
            for own, other in pairs
        )

    def initialise(self, generator: torch.Generator) -> None:
        for adapter in self.adapters:
            if isinstance(adapter, Adapter):
                adapter.initialise(generator)

    def forward(self, student: Mapping[str, Tensor], teacher: Mapping[str, Tensor]) -> Tensors:
        """The student's name of each paired layer → its enriched weights."""
        return {
            own: adapter(student[own].flatten(1), teacher[other].flatten(1)).view_as(student[own])
            for (own, other), adapter in zip(self.pairs, self.adapters, strict=True)
        }


def resolve_pairs(
    config: MergeNetConfig, student: Mapping[str, Tensor], teacher: Mapping[str, Tensor] | None
) -> tuple[Pair, ...]:
    """The full names of the paired weights. Raises AccordError for a layer that does not fit.

    For an adapter without a teacher, every layer is paired with itself.
    """
    asked = config.pairs or ((_last_convolution(student), "head"),)
    names = [_layer(own, student, "student") for own, _ in asked]
    others = names
    if teacher is not None:
        others = [_layer(other, teacher, "teacher") for _, other in asked]
    pairs = tuple(zip(names, others, strict=True))
    students = [own for own, _ in pairs]
    twice = [name for name in students if students.count(name) > 1]
    if twice:
        raise AccordError(f"mergenet.pairs: the student's layer {twice[0]!r} is named twice.")
    return pairs


def _last_convolution(student: Mapping[str, Tensor]) -> str:
    found = [name for name, tensor in student.items() if tensor.ndim == 4]
    if not found:
        raise AccordError("the student has no convolution: name its layers in mergenet.pairs.")
    return found[-1]


def _layer(name: str, weights: Mapping[str, Tensor], whose: str) -> str:
    """The name of a weight with 2 or 4 dimensions."""
    full = next((name + ending for ending in ENDINGS if name + ending in weights), None)
    able = [key for key, tensor in weights.items() if tensor.ndim in (2, 4)]
    if full is None:
        raise AccordError(
            f"mergenet.pairs: the {whose} has no layer {name!r}{nearest(name, able) or '.'} Its "
            f"layers are: {', '.join(able)}."
        )
    if full not in able:
        raise AccordError(
            f"mergenet.pairs: expected a layer of the {whose} with 2 dimensions (linear) or 4 "
            f"(convolution); {full!r} has the shape {tuple(weights[full].shape)}. Use one of: "
            f"{', '.join(able)}."
        )
    return full


def _size(weight: Tensor) -> Size:
    rows, columns = weight.flatten(1).shape
    return rows, columns
