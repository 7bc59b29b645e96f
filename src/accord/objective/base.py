"""The input of a loss term, the base classes of terms and anchors, and their registries."""

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
    """The input of one training step: V views of B images, stacked view by view.

    - `features` f is (V·B, d), `logits` is (V·B, C), and `labels` y is (V·B).
    - `prototypes` P (C, d) is the weight of the head; `first_prototypes` P₀ is its value before
      the first step.
    - `parameters` w are all trained weights; `first_parameters` w₀ are their values before the
      first step of the communication round, which are those of the server.
    - `anchors` A is (C, d) or None.
    - `label_counts` n_c is the number of the client's images of each class.
    - `queue` holds past features of the client and `bank` holds public features, if a term needs
      them; `reference` is the bank weighted by the client's own class proportions.
    - `lesson` maps names to the teacher's outputs for each image, (V·B, …).
    - `progress` p ∈ [0, 1) is the progress over all local training.
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
        """(C): whether the client holds each class."""
        return self.label_counts > 0

    def taught(self, what: str) -> Tensor:
        """The teacher's output of the name `what` for each image."""
        if what not in self.lesson:
            raise AccordError(
                f"the briefing has no teacher and so no {what}: the terms imitation and "
                "feature-imitation are for the student of the fusion 'distilled'. Use the term "
                "distillation, or remove this term from the recipe."
            )
        return self.lesson[what]

    @cached_property
    def directions(self) -> Tensor:
        """z = f / ‖f‖₂."""
        return F.normalize(self.features, dim=1)


class Term(Config, ABC):
    """A loss term. Its fields are its parameters, and a call returns the loss as a scalar."""

    weight: float = Field(1.0, gt=0, description="factor of this loss within L_loc")

    @abstractmethod
    def __call__(self, batch: Batch) -> Tensor: ...

    def queue_size(self) -> int:
        """The number of the client's past features that the term needs in `batch.queue`."""
        return 0

    def uses_teacher(self) -> bool:
        """Whether the term needs the logits of the server's teacher."""
        return False

    def uses_bank(self) -> bool:
        """Whether the term needs the public features of the briefing."""
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
        raise AccordError(
            f"{where}: the key is the name of the term; `use` is not for terms. Remove `use`."
        )
    return make_part(terms, {"use": name, **(spec or {})}, where)


def make_alignment(name: str, spec: dict[str, Any] | None, where: str) -> Term:
    """The term that an entry of a recipe's `align` describes. The entry also holds the balance."""
    params = {key: value for key, value in (spec or {}).items() if key != "balance"}
    if "weight" in params:
        raise AccordError(
            f"{where}.weight: the balance sets the weight of an alignment term. Remove `weight`."
        )
    return make_term(name, params, where)
