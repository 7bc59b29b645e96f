"""A study: data × partition × net × budget × rounds × recipes × seeds.

A list in the place of a single value makes a grid axis. Everything is checked here, before any
data is read and before any net is trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from accord.core.budget import Budget
from accord.core.config import Config, keys, parse
from accord.core.errors import AccordError, nearest
from accord.core.mergenet import MergeNetConfig
from accord.core.parts import part_spec
from accord.core.yamls import read_yaml
from accord.data.schemes import Scheme, make_scheme
from accord.fusion.named import NamedFusion
from accord.methods import Method
from accord.methods.mergenet import MergeNet
from accord.nets.settings import TeacherConfig
from accord.study.paths import absolute_paths
from accord.study.recipe import ClosedFormRecipe, Recipe, TrainingRecipe
from accord.study.resolve import resolve
from accord.study.settings import (
    BOUNDS,
    Options,
    RoundsConfig,
    Setup,
    cells,
    resolved_sections,
    section_of,
)
from accord.study.syntax import Spec

C = TypeVar("C", bound=Config)
POOLED = make_scheme({"scheme": "iid", "clients": 1})


@dataclass(frozen=True)
class Trial:
    """One cell of a study."""

    study: str
    setup: Setup
    recipe: Recipe
    fusions: tuple[NamedFusion, ...]
    seed: int
    options: Options

    @property
    def method(self) -> Method:
        """The recipe's method, with the study's number of rounds and its settings."""
        setup = self.setup
        method = self.recipe.make_method().with_rounds(setup.rounds.count)
        return method.with_settings(setup.mergenet, setup.teacher)

    @property
    def method_spec(self) -> Spec:
        """The method as JSON, for a worker process."""
        return part_spec(self.recipe.method_name, self.method)


@dataclass(frozen=True)
class Study:
    """A checked study: its options, its recipes, and one setup per cell of its grid."""

    options: Options
    setups: tuple[Setup, ...]
    recipes: tuple[Recipe, ...]
    fusions: tuple[NamedFusion, ...]
    resolved: dict[str, Any]  # as written to RUN/study.yaml

    @property
    def name(self) -> str:
        return self.options.name

    def trials(self) -> list[Trial]:
        """One trial per cell. A pooled recipe has one trial for all partitions."""
        found: dict[str, Trial] = {}
        for dealt, recipe, seed in itertools.product(self.setups, self.recipes, self.options.seeds):
            setup = setup_for(recipe, dealt)
            rules = recipe.fusions_with(self.fusions)
            trial = Trial(self.name, setup, recipe, rules, seed, self.options)
            found.setdefault(f"{setup.model_dump_json()} {recipe.name} {seed}", trial)
        return list(found.values())


def setup_for(recipe: Recipe, setup: Setup) -> Setup:
    """The study's setup for one recipe, with the recipe's budget, rounds and images."""
    changes: dict[str, Any] = {
        "budget": budget_for(recipe, setup.budget),
        "rounds": _rounds_for(recipe, setup.rounds),
        **_teaching_for(recipe, setup),
    }
    if recipe.pooled:
        changes |= _without_rounds(changes)
        copies = recipe.copies if isinstance(recipe, TrainingRecipe) else 1
        changes["partition"] = _pooled(copies)
    if recipe.pooled == "public":
        changes["data"] = setup.data.model_copy(update={"dealt": "public"})
    return setup.model_copy(update=changes)


def budget_for(recipe: Recipe, budget: Budget) -> Budget:
    """The budget of one recipe.

    A recipe's own values replace those of the study. A closed form has one epoch, and an alignment
    stage ends with a checkpoint.
    """
    if isinstance(recipe, ClosedFormRecipe):
        return budget.changed({"epochs": 1})
    if not isinstance(recipe, TrainingRecipe):
        raise TypeError(f"{type(recipe).__name__} has no budget")
    budget = budget.changed(recipe.budget)
    stage = recipe.alignment_epochs
    if not stage:
        return budget
    if stage >= budget.epochs:
        raise AccordError(
            f"recipes.{recipe.name}.alignment_epochs: expected fewer than budget.epochs = "
            f"{budget.epochs}, so that some epochs are left for all terms; found {stage}."
        )
    return budget.with_checkpoint(stage)


def _rounds_for(recipe: Recipe, rounds: RoundsConfig) -> RoundsConfig:
    """The rounds of one recipe: the defaults if it is one-shot, else with the number filled in."""
    method = recipe.make_method().with_rounds(rounds.count)
    if not recipe.several_rounds:
        return RoundsConfig()
    return rounds.model_copy(update={"count": method.rounds})


def _teaching_for(recipe: Recipe, setup: Setup) -> dict[str, Config]:
    """The sections `mergenet` and `teacher` for one recipe: the defaults if it does not use them."""
    mergenet, teacher = MergeNetConfig(), TeacherConfig()
    if not isinstance(recipe, TrainingRecipe):
        return {"mergenet": mergenet, "teacher": teacher}
    where, method = f"recipes.{recipe.name}", recipe.make_method()
    if isinstance(method, MergeNet):
        mergenet = _changed(setup.mergenet, recipe.mergenet, f"{where}.mergenet")
        method = method.with_settings(mergenet, teacher)
    if method.needs_teacher or recipe.clients_ask_teacher:
        teacher = _changed(setup.teacher, recipe.teacher, f"{where}.teacher")
    return {"mergenet": mergenet, "teacher": teacher}


def _changed(section: C, own: Spec, where: str) -> C:
    return parse(type(section), {**section.model_dump(), **own}, where)


def _without_rounds(changes: dict[str, Any]) -> dict[str, Any]:
    """A pooled recipe has one client, which trains the epochs of all rounds without a break.

    It is measured after as many epochs as the end of each round.
    """
    budget, rounds = changes["budget"], changes["rounds"]
    count = rounds.count or 1
    if count == 1:
        return {"rounds": RoundsConfig(count=rounds.count)}
    ends = [
        number * budget.epochs + epoch for number in range(count) for epoch in budget.checkpoints
    ]
    longer = budget.changed({"epochs": count * budget.epochs, "checkpoints": tuple(ends)})
    always = {"start_round": 1, "fusion_frequency": 1}
    return {
        "budget": longer,
        "rounds": RoundsConfig(count=1),
        "mergenet": changes["mergenet"].model_copy(update=always),
    }


def _pooled(copies: int) -> Scheme:
    if copies == 1:
        return POOLED
    return make_scheme({"scheme": "copies", "clients": copies})


def load_study(source: Path | str | Mapping[str, Any], overrides: Sequence[str] = ()) -> Study:
    """The study in a YAML file or a mapping, with dotted `key=value` overrides."""
    return check_study(*read_study(source, overrides))


def read_study(
    source: Path | str | Mapping[str, Any], overrides: Sequence[str] = ()
) -> tuple[dict[str, Any], Path]:
    """The unchecked study with its overrides, and the folder where relative paths start."""
    if isinstance(source, Mapping):
        raw, folder = dict(source), Path()
    else:
        path = Path(source)
        raw, folder = absolute_paths(read_yaml(path), path.parent), path.parent
    for override in overrides:
        raw = _override(raw, override)
    return absolute_paths(raw, Path.cwd()), folder


def check_study(raw: Mapping[str, Any], folder: Path) -> Study:
    """The study in `raw`, with every key and value checked; relative paths start from `folder`."""
    known = [*keys(Options), *keys(Setup), "recipes", "fusions"]
    for key in raw:
        if key not in known:
            recipe_keys = (*keys(TrainingRecipe), *keys(ClosedFormRecipe))
            inside = " It belongs in a recipe." if key in recipe_keys else ""
            raise AccordError(
                f"unknown key {key!r}{nearest(str(key), known) or '.'}{inside} "
                f"A study has: {', '.join(known)}."
            )
    options = parse(Options, {k: v for k, v in raw.items() if k in keys(Options)}, "")
    sections = {key: section_of(raw, key) for key in keys(Setup) if raw.get(key) is not None}
    setups = tuple(cells(sections))
    recipes = _recipes(raw.get("recipes"), options, folder)
    fusions = _fusions(raw.get("fusions"))
    for recipe in recipes:
        _refuse_same_labels((*recipe.fusion, *fusions), recipe.name)
        for setup in setups:
            setup_for(recipe, setup)
    _refuse_idle_rounds(sections.get("rounds"), recipes)
    resolved = {
        **options.model_dump(mode="json"),
        **resolved_sections(sections, setups[0]),
        "recipes": [recipe.model_dump(mode="json", exclude_none=True) for recipe in recipes],
        "fusions": [fusion.to_json() for fusion in fusions],
    }
    return Study(options, setups, recipes, fusions, resolved)


def _refuse_idle_rounds(rounds: Spec | None, recipes: Sequence[Recipe]) -> None:
    """Refuses a section `rounds` if no recipe of the study has several rounds."""
    asked = {key: value for key, value in (rounds or {}).items() if value is not None}
    plain = RoundsConfig().model_dump()
    if any(plain[key] != value for key, value in asked.items() if key in plain):
        if any(recipe.several_rounds for recipe in recipes):
            return
        if asked.get("count") == 1 and len(asked) == 1:
            return
        names = ", ".join(recipe.name for recipe in recipes)
        raise AccordError(
            f"'rounds' is for recipes with several rounds, such as fedavg; found only one-shot "
            f"recipes: {names}. Add a recipe with several rounds, or remove the section."
        )


def _recipes(entries: Any, options: Options, folder: Path) -> tuple[Recipe, ...]:
    if isinstance(entries, str | Mapping):
        entries = [entries]
    if not isinstance(entries, list) or not entries:
        raise AccordError(
            f"'recipes': expected a list of recipes such as [fafi, ce-ensemble]; found {entries!r}."
        )
    recipes = [resolve(entry, folder) for entry in entries]
    names = [recipe.name for recipe in recipes]
    for name in names:
        if names.count(name) > 1:
            raise AccordError(
                f"two recipes are named {name!r}; give one of them another name with `as: …`."
            )
    if options.bounds:
        recipes += [resolve(name, folder) for name in BOUNDS if name not in names]
    return tuple(recipes)


def _fusions(entries: Any) -> tuple[NamedFusion, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        entries = [entries]
    return tuple(NamedFusion.read(entry, "fusions") for entry in entries)


def _refuse_same_labels(fusions: Sequence[NamedFusion], recipe: str) -> None:
    """Refuses two different fusions with the same name; the same fusion may occur twice."""
    known: dict[str, NamedFusion] = {}
    for fusion in fusions:
        if known.setdefault(fusion.label, fusion) != fusion:
            raise AccordError(
                f"two different fusions of recipe {recipe!r} are named {fusion.label!r}; give one "
                "of them another name with `as: …`."
            )


def _override(raw: dict[str, Any], override: str) -> dict[str, Any]:
    """`raw`, changed by one dotted override such as `budget.epochs=3`."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise AccordError(f"expected key=value, e.g. budget.epochs=3; found {override!r}.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise AccordError(f"the value of {key!r} is not valid YAML: {text!r}.") from None
    first, _, rest = key.partition(".")
    if rest:
        inner = raw.get(first, {})
        if not isinstance(inner, Mapping):
            raise AccordError(
                f"{override!r}: the value of {first!r} is {inner!r}, which has no keys."
            )
        value = _override(dict(inner), f"{rest}={text}")
    return {**raw, first: value}
