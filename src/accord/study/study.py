"""A study: data × partition × net × budget × rounds × recipes × seeds.

A list in the place of a single value makes a grid axis. Everything is checked here, before any
data is read and before any net is trained.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from accord.core.config import keys, parse
from accord.core.errors import AccordError, nearest
from accord.core.parts import part_spec
from accord.core.yamls import read_yaml, yaml_of
from accord.fusion.named import NamedFusion
from accord.methods import Method
from accord.study.bases import with_bases
from accord.study.chosen import chosen
from accord.study.fusion_list import read_fusions, refuse_idle_fusions, refuse_same_labels
from accord.study.paths import absolute_paths
from accord.study.recipe import ClosedFormRecipe, Recipe, TrainingRecipe
from accord.study.resolve import resolve
from accord.study.settings import (
    REFERENCES,
    Options,
    RoundsConfig,
    Setup,
    cells,
    refuse_large,
    resolved_sections,
    result_axes,
    section_of,
)
from accord.study.setups import setup_for
from accord.study.syntax import Spec


@dataclass(frozen=True)
class Trial:
    """One cell of a study."""

    study: str
    setup: Setup
    recipe: Recipe
    fusions: tuple[NamedFusion, ...]
    seed: int
    options: Options
    axes: tuple[str, ...] = ()  # the grid axes of the study, or of the record that it is added to
    before: Trial | None = None  # the trial of the same cell whose result it begins with

    @property
    def cell(self) -> str:
        """A key that is different for every trial of a study."""
        return f"{self.setup.model_dump_json()} {self.recipe.name} {self.seed}"

    @property
    def idle_sections(self) -> list[str]:
        """The sections about teachers that the trial does not depend on."""
        used = {"mergenet": self.recipe.uses_mergenet, "teacher": self.needs_teacher}
        return [name for name, is_used in used.items() if not is_used]

    @property
    def needs_teacher(self) -> bool:
        """Whether the method or the clients learn from a teacher."""
        return self.method.needs_teacher or self.recipe.clients_ask_teacher

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

    @property
    def axes(self) -> tuple[str, ...]:
        return tuple(result_axes(self.resolved))

    def idle_sections(self) -> list[str]:
        """The sections about teachers that were written but that no recipe uses."""
        used = [setup_for(recipe, setup) for recipe in self.recipes for setup in self.setups]
        plain = {name: Setup.model_fields[name].default for name in ("mergenet", "teacher")}
        return [
            name
            for name, default in plain.items()
            if any(getattr(setup, name) != default for setup in self.setups)
            and all(getattr(setup, name) == default for setup in used)
        ]

    def trials(self) -> list[Trial]:
        """One trial per cell. A pooled recipe has one trial for all partitions.

        `partition.leave_out: each` is still one trial here: who the clients are is in the data.
        """
        cells = itertools.product(self.setups, self.recipes, self.options.seeds)
        return distinct(self._trial(dealt, recipe, seed) for dealt, recipe, seed in cells)

    def _trial(self, dealt: Setup, recipe: Recipe, seed: int) -> Trial:
        setup, rules = setup_for(recipe, dealt), recipe.fusions_with(self.fusions)
        base = next((one for one in self.recipes if one.name == recipe.stands_on), None)
        before = None if base is None else self._trial(dealt, base, seed)
        return Trial(self.name, setup, recipe, rules, seed, self.options, self.axes, before)


def distinct(trials: Iterable[Trial]) -> list[Trial]:
    """The trials, each once: some do not depend on every axis of the grid."""
    found: dict[str, Trial] = {}
    for trial in trials:
        found.setdefault(trial.cell, trial)
    return list(found.values())


def leaving_out(trial: Trial, site: str | None) -> Trial:
    """The trial in which the client `site` takes no part; None: all take part."""
    partition = trial.setup.partition.model_copy(update={"leave_out": site})
    before = None if trial.before is None else leaving_out(trial.before, site)
    setup = trial.setup.model_copy(update={"partition": partition})
    return replace(trial, setup=setup, before=before)


def with_rounds_for(trial: Trial, clients: int) -> Trial:
    """The trial with its number of rounds, if it depends on the number of clients."""
    before = None if trial.before is None else with_rounds_for(trial.before, clients)
    rounds = trial.setup.rounds
    if trial.method.open_rounds:
        rounds = rounds.model_copy(update={"count": trial.method.rounds_for(clients)})
    return replace(trial, setup=trial.setup.model_copy(update={"rounds": rounds}), before=before)


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
    own = raw.get("recipes")
    for override in overrides:
        raw = _override(raw, override)
    if isinstance(own, list) and raw.get("recipes") is not own:
        raw["recipes"] = chosen(raw.get("recipes"), own, folder)
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
    elsewhere = any(setup.partition.elsewhere for setup in setups)
    entries = raw.get("recipes")
    refuse_large(
        len(setups) * len(options.seeds) * (len(entries) if isinstance(entries, list) else 1),
        "trials",
    )
    recipes = _recipes(raw.get("recipes"), options.references and not elsewhere, folder)
    if elsewhere:
        _refuse_pooled(recipes)
        _refuse_shift(setups)
    fusions = read_fusions(raw.get("fusions"))
    refuse_idle_fusions(fusions, recipes)
    for recipe in recipes:
        refuse_same_labels((*recipe.fusion, *fusions), recipe.name)
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


def _refuse_pooled(recipes: Sequence[Recipe]) -> None:
    """Refuses recipes that need all clients' images in one place, if those are elsewhere."""
    for recipe in recipes:
        if recipe.pooled is True:
            raise AccordError(
                f"recipe {recipe.name!r} trains on all clients' images in one place, but with "
                "partition.scheme: sites they are elsewhere. Remove this recipe."
            )


def _refuse_shift(setups: Sequence[Setup]) -> None:
    """Refuses to change images that are elsewhere, and to make their clients hostile."""
    for setup in setups:
        if setup.partition.elsewhere and not setup.shift.changes_nothing:
            raise AccordError(
                "'shift' changes the images and labels of simulated clients, but with "
                "partition.scheme: sites they are elsewhere. Remove the section."
            )
        if setup.partition.elsewhere and setup.attack.attacks:
            raise AccordError(
                "'attack' is for simulated clients, but with partition.scheme: sites they are "
                "elsewhere. Remove the section."
            )


def _recipes(entries: Any, references: bool, folder: Path) -> tuple[Recipe, ...]:
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
    recipes = with_bases(recipes, folder)
    names = [recipe.name for recipe in recipes]
    if references:
        recipes += [resolve(name, folder) for name in REFERENCES if name not in names]
    return tuple(recipes)


def _override(raw: dict[str, Any], override: str) -> dict[str, Any]:
    """`raw`, changed by one dotted override such as `budget.epochs=3`."""
    key, equals, text = override.partition("=")
    if not equals or not key:
        raise AccordError(f"expected key=value, e.g. budget.epochs=3; found {override!r}.")
    try:
        value = yaml_of(text)
    except ValueError as error:
        raise AccordError(
            f"the value of {key[:100]!r} is not valid YAML: {text[:100]!r}: {error}"
        ) from None
    first, _, rest = key.partition(".")
    if rest:
        inner = raw.get(first, {})
        if not isinstance(inner, Mapping):
            raise AccordError(
                f"{override!r}: the value of {first!r} is {inner!r}, which has no keys."
            )
        value = _override(dict(inner), f"{rest}={text}")
    return {**raw, first: value}
