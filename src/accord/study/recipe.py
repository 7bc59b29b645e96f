"""Recipes: short YAML files that name and parametrise registered parts.

A recipe is of one of two kinds, and each kind has keys of its own. One trains nets: an objective
(local terms), anchors, alignment terms with a balance each, a method and a fusion. The other, which
has a `map`, sums fixed features: the closed form.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from accord.closed_form.sums import Packing
from accord.core.config import Config
from accord.core.parts import make_part
from accord.fusion.base import Bound
from accord.fusion.named import NamedFusion
from accord.messages import SummingSpec, TrainingSpec
from accord.methods import Method, methods
from accord.methods.one_shot import OneShot
from accord.nets.maps import MapConfig
from accord.objective.bank import BankConfig
from accord.study.settings import NAME
from accord.study.syntax import Spec


class Recipe(Config):
    """What all recipes have: a name, and a fusion of what their clients upload."""

    uploads: ClassVar[Literal["nets", "sums"]]

    name: str = Field(pattern=NAME)
    alias: str | None = Field(None, description="its name in the notes")
    about: str = ""
    pooled: bool | Literal["public"] = Field(
        False, description="all clients' images in one place, or the public ones alone: a bound"
    )
    fusion: tuple[NamedFusion, ...] = Field(min_length=1, description="uploads → one predictor")

    @property
    @abstractmethod
    def training(self) -> TrainingSpec | SummingSpec:
        """The part of the recipe that acts at a client, as it stands in a briefing."""

    @property
    @abstractmethod
    def method_name(self) -> str: ...

    @abstractmethod
    def make_method(self) -> Method: ...

    @property
    def several_rounds(self) -> bool:
        """Whether its clients and the server can meet more than once."""
        return not isinstance(self.make_method(), OneShot)

    def fusions_with(self, more: Iterable[NamedFusion]) -> tuple[NamedFusion, ...]:
        """Its own fusions and those of `more` that it takes."""
        taken = [fusion for fusion in more if self.takes(fusion)]
        return tuple({one.label: one for one in (*self.fusion, *taken)}.values())

    def takes(self, fusion: NamedFusion) -> bool:
        """Whether a fusion can use what its clients upload; a bound takes no other fusion."""
        bound = self.pooled or all(isinstance(one.rule, Bound) for one in self.fusion)
        fits = fusion.rule.of == self.uploads and not bound
        return fits or fusion.use in {one.use for one in self.fusion}


class TrainingRecipe(Recipe, TrainingSpec):
    """A recipe whose clients train nets."""

    uploads = "nets"

    copies: int = Field(
        1, ge=1, description="nets of a pooled recipe, which differ in their batches: an ensemble"
    )
    budget: Spec = Field(default={}, description="laid over the study's budget")
    bank: BankConfig | None = Field(None, description="public features that clients are given")
    method: Spec = Field(
        default={"use": "one-shot"}, description="what happens from round to round"
    )

    @property
    def training(self) -> TrainingSpec:
        return TrainingSpec(**{key: getattr(self, key) for key in TrainingSpec.model_fields})

    @property
    def method_name(self) -> str:
        return str(self.method["use"])

    def make_method(self) -> Method:
        return make_part(methods, self.method, f"recipes.{self.name}.method")


class ClosedFormRecipe(Recipe):
    """A recipe whose clients sum fixed features; nothing trains."""

    uploads = "sums"

    map: MapConfig = Field(description="the fixed features, in the place of a net")
    packing: Packing = Field("float32", description="number format of the scatter in an upload")

    @property
    def training(self) -> SummingSpec:
        return SummingSpec(map=self.map.model_dump(mode="json"), packing=self.packing)

    @property
    def method_name(self) -> str:
        return "one-shot"

    def make_method(self) -> Method:
        return OneShot()


def kind_of(raw: dict[str, Any]) -> type[TrainingRecipe] | type[ClosedFormRecipe]:
    """A recipe with a `map` sums fixed features; all others train."""
    return TrainingRecipe if raw.get("map") is None else ClosedFormRecipe
