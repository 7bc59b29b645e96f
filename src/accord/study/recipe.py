"""Recipes: short YAML files that choose registered parts and their parameters.

There are two kinds of recipes, with different keys. The clients of the first kind train nets; it
has an objective (local terms), anchors, alignment terms with one balance each, a method and a
fusion. The clients of the second kind, the closed form, sum fixed features; it has a `map`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from typing import Any, ClassVar, Literal

from pydantic import Field

from accord.closed_form.packing import Packing
from accord.core.config import Config
from accord.core.parts import make_part
from accord.fusion.base import Merge, ReferenceRule
from accord.fusion.named import NamedFusion
from accord.messages import SummingSpec, TrainingSpec
from accord.methods import Method, methods
from accord.methods.mergenet import MergeNet
from accord.methods.one_shot import OneShot
from accord.nets.maps import MapConfig
from accord.objective import make_alignment, make_term
from accord.objective.bank import BankConfig
from accord.study.settings import NAME
from accord.study.syntax import Spec


class Recipe(Config):
    """The keys of all recipes: a name, and the fusions of what the clients upload."""

    uploads: ClassVar[Literal["nets", "sums"]]

    name: str = Field(pattern=NAME)
    alias: str | None = Field(None, description="the recipe's name in the research notes")
    about: str = ""
    pooled: bool | Literal["public"] = Field(
        False,
        description="true: a reference, trained on all clients' images in one place; public: on "
        "the public images only",
    )
    fusion: tuple[NamedFusion, ...] = Field(min_length=1, description="uploads → one predictor")

    @property
    @abstractmethod
    def training(self) -> TrainingSpec | SummingSpec:
        """The part of the recipe that the briefing carries to the clients."""

    @property
    @abstractmethod
    def method_name(self) -> str: ...

    @abstractmethod
    def make_method(self) -> Method: ...

    @property
    def stands_on(self) -> str | None:
        """The recipe whose result this recipe begins with; None for most recipes."""
        return None

    @property
    def uses_mergenet(self) -> bool:
        """Whether the study's section `mergenet` holds settings of this recipe."""
        return False

    @property
    def clients_ask_teacher(self) -> bool:
        """Whether clients need the server's teacher."""
        return False

    @property
    def may_use_teacher(self) -> bool:
        """Whether the study's section `teacher` may hold settings of this recipe."""
        return self.uses_mergenet or self.clients_ask_teacher or self.make_method().needs_teacher

    @property
    def views_per_image(self) -> int:
        """Views of an image per step; 1 for a client that sums fixed features."""
        return 1

    @property
    def several_rounds(self) -> bool:
        """Whether the recipe's method can have more than one round."""
        return not isinstance(self.make_method(), OneShot)

    def fusions_with(self, more: Iterable[NamedFusion]) -> tuple[NamedFusion, ...]:
        """Its own fusions, and those of `more` that it can use."""
        taken = [fusion for fusion in more if self.takes(fusion)]
        return tuple({one.label: one for one in (*self.fusion, *taken)}.values())

    def takes(self, fusion: NamedFusion) -> bool:
        """Whether a fusion can use the clients' uploads; a reference has only its own fusions."""
        alone = self.pooled or all(isinstance(one.rule, ReferenceRule) for one in self.fusion)
        fits = fusion.rule.of == self.uploads and not alone and self.can_use(fusion)
        return fits or fusion.use in {one.use for one in self.fusion}

    def can_use(self, fusion: NamedFusion) -> bool:
        """Whether there is a state after each round, if the fusion needs one.

        If one client trains at a time, only this state holds what all clients have learnt.
        """
        needs_state = isinstance(fusion.rule, Merge) and fusion.rule.after_advance
        if self.make_method().one_by_one and not self.pooled:
            return needs_state
        return self.several_rounds or not needs_state


class TrainingRecipe(Recipe, TrainingSpec):
    """A recipe whose clients train nets."""

    uploads = "nets"

    copies: int = Field(
        1,
        ge=1,
        le=1_000,
        description="number of nets of a pooled recipe, which form an ensemble; they differ in "
        "their batches",
    )
    budget: Spec = Field(default={}, description="values that replace those of the study's budget")
    mergenet: Spec = Field(
        default={}, description="values that replace those of the study's section mergenet"
    )
    teacher: Spec = Field(
        default={}, description="values that replace those of the study's section teacher"
    )
    bank: BankConfig | None = Field(None, description="public features that all clients receive")
    labels_from: str | None = Field(
        None,
        min_length=1,
        description="the recipe whose result labels the public images, for its teacher and its "
        "clients; null: they have labels",
    )
    labels_model: str | None = Field(
        None,
        min_length=1,
        description="folder of a saved model that labels the public images, in the place of the "
        "recipe `labels_from`",
    )
    method: Spec = Field(
        default={"use": "one-shot"}, description="what the server does in each round"
    )

    @property
    def training(self) -> TrainingSpec:
        return TrainingSpec(**{key: getattr(self, key) for key in TrainingSpec.model_fields})

    @property
    def views_per_image(self) -> int:
        return self.views

    @property
    def stands_on(self) -> str | None:
        return None if self.labels_model else self.labels_from

    @property
    def method_name(self) -> str:
        return str(self.method["use"])

    def make_method(self) -> Method:
        return make_part(methods, self.method, f"recipes.{self.name}.method")

    @property
    def uses_mergenet(self) -> bool:
        return isinstance(self.make_method(), MergeNet)

    @property
    def clients_ask_teacher(self) -> bool:
        local = [make_term(name, spec, name) for name, spec in self.objective.items()]
        align = [make_alignment(name, spec, name) for name, spec in self.align.items()]
        return any(term.uses_teacher() for term in (*local, *align))


class ClosedFormRecipe(Recipe):
    """A recipe whose clients sum fixed features; no net is trained."""

    uploads = "sums"

    map: MapConfig = Field(description="the fixed features, which replace a trained net")
    packing: Packing = Field("float32", description="number format of the scatter in an upload")

    @property
    def stands_on(self) -> str | None:
        return self.map.stands_on

    @property
    def training(self) -> SummingSpec:
        return SummingSpec(map=self.map.sent().model_dump(mode="json"), packing=self.packing)

    @property
    def method_name(self) -> str:
        return "one-shot"

    def make_method(self) -> Method:
        return OneShot()


def kind_of(raw: dict[str, Any]) -> type[TrainingRecipe] | type[ClosedFormRecipe]:
    """The kind of a recipe: with a `map` its clients sum fixed features, else they train nets."""
    return TrainingRecipe if raw.get("map") is None else ClosedFormRecipe
