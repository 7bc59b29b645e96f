"""What a loss term sees of a step, and the families of terms and anchors."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.registry import Registry
from accord.objective.negatives import Rows
from accord.objective.reference import Reference


@dataclass(frozen=True)
class Batch:
    """One step: V views of B images, stacked view by view.

    `features` f is (V·B, d), `logits` (V·B, C), `labels` y (V·B). `prototypes` P is (C, d), the
    head's weight, `first_prototypes` P₀ its value before the first step; `parameters` w are all the
    weights that train, `first_parameters` w₀ their values before the first step of the round, which
    are the server's; `anchors` A is (C, d) or
    None; `label_counts` n_c are the client's images of each class; `queue` holds its past features,
    `bank` public ones, where a term asks for them, and `reference` is what that bank says of the
    client's own mix of classes; `lesson` is what a teacher says of each image, by name, (V·B, …);
    `progress` p ∈ [0, 1) is over all local training.
    """

    features: Tensor
    logits: Tensor
    labels: Tensor
    prototypes: Tensor
    label_counts: Tensor
    anchors: Tensor | None = None
    first_prototypes: Tensor | None = None
    queue: Rows | None = None
    bank: Rows | None = None
    reference: Reference | None = None
    lesson: Mapping[str, Tensor] = field(default_factory=dict)
    progress: float = 0.0
    parameters: tuple[Tensor, ...] = ()
    first_parameters: tuple[Tensor, ...] = ()

    @property
    def held(self) -> Tensor:
        """(C): the classes the client has."""
        return self.label_counts > 0

    def taught(self, what: str) -> Tensor:
        """What a teacher says of each image."""
        if what not in self.lesson:
            raise AccordError(
                f"there is no teacher's {what} in the briefing: only the fusion 'distilled' gives "
                "one, to its student. Take the imitation term out of the recipe."
            )
        return self.lesson[what]

    @cached_property
    def directions(self) -> Tensor:
        """z = f / ‖f‖₂."""
        return F.normalize(self.features, dim=1)


class Term(Config, ABC):
    """A loss term: its fields are its parameters, calling it gives a scalar."""

    weight: float = Field(1.0, gt=0, description="times the loss, within L_loc")

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor: ...

    def queue_size(self) -> int:
        """How many of the client's past features the term wants to see in `batch.queue`."""
        return 0

    def uses_bank(self) -> bool:
        """Whether the term needs the public features of a briefing."""
        return False


class Anchors(Config, ABC):
    """A rule that makes the (C, d) anchor matrix of a briefing."""

    @abstractmethod
    def make(self, classes: int, width: int, generator: torch.Generator) -> Tensor: ...


terms: Registry[type[Term]] = Registry("term", "accord.objective")
anchor_kinds: Registry[type[Anchors]] = Registry("anchors", "accord.objective")


def make_term(name: str, spec: dict[str, Any] | None, where: str) -> Term:
    """The term that an entry of a recipe's objective describes."""
    if "use" in (spec or {}):
        raise AccordError(f"{where}: a term's name is its key; `use` is not for terms.")
    return make_part(terms, {"use": name, **(spec or {})}, where)


def make_alignment(name: str, spec: dict[str, Any] | None, where: str) -> Term:
    """The term that an entry of a recipe's `align` describes, where its balance stands as well."""
    params = {key: value for key, value in (spec or {}).items() if key != "balance"}
    if "weight" in params:
        raise AccordError(f"{where}.weight: an alignment term is weighed by its balance; drop it.")
    return make_term(name, params, where)
