"""A study asks a question: data × partition × net × budget × recipes × seeds.

A list where one value stands makes a grid axis. Everything is checked here, before any data is
read or any net trains.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import yaml
from pydantic import Field, field_validator

from accord.budget import Budget, NetConfig
from accord.config import Config, keys, parse
from accord.data.partition import PartitionConfig
from accord.data.settings import DataConfig
from accord.errors import AccordError, nearest
from accord.paths import absolute_paths
from accord.recipe import NAME, Recipe, fusion_spec, resolve
from accord.spelling import Spec
from accord.yamls import read_yaml

BOUNDS = ("central", "local-only")


class Setup(Config):
    """The sections of a study that a grid axis may run over."""

    data: DataConfig
    partition: PartitionConfig = PartitionConfig()
    net: NetConfig = NetConfig()
    budget: Budget = Budget()

    def for_recipe(self, recipe: Recipe) -> Setup:
        """With the recipe's budget; sums take one look, an alignment stage ends at a checkpoint."""
        own = {**recipe.budget, **({"epochs": 1} if recipe.map else {})}
        if "epochs" in own:
            own = {"checkpoints": (), **own}
        setup = self
        if own:
            merged = Budget.model_validate({**self.budget.model_dump(), **own})
            setup = self.model_copy(update={"budget": merged})
        stage = recipe.alignment_epochs
        return setup.with_stage(stage, recipe.name) if stage else setup

    def with_stage(self, stage: int, recipe: str) -> Setup:
        """With a checkpoint at the end of `stage` epochs."""
        if stage >= self.budget.epochs:
            raise AccordError(
                f"recipes.{recipe}.alignment_epochs: expected fewer than budget.epochs = "
                f"{self.budget.epochs}, so that some are left for the rest; found {stage}."
            )
        return self.model_copy(update={"budget": self.budget.with_checkpoint(stage)})


class Options(Config):
    """Where and how it runs; what no grid axis runs over."""

    name: str = Field(pattern=NAME)
    seeds: tuple[Annotated[int, Field(ge=0, lt=2**63, strict=True)], ...] = Field(
        (0,), min_length=1
    )
    device: str | dict[int | str, str] = Field(
        "auto", description="cpu, cuda, cuda:1, …, or one per client"
    )
    autocast: bool | Literal["auto"] = "auto"
    compile: bool | Literal["auto"] = "auto"
    keep_checkpoints: bool = False
    bounds: bool = Field(True, description=f"add {' and '.join(BOUNDS)} to every table")

    @field_validator("seeds", mode="before")
    @classmethod
    def _a_list(cls, value: Any) -> Any:
        if isinstance(value, int):
            # One seed, or that many seeds? Better ask.
            raise ValueError(f"expected a list such as [0, 1, 2], or [{value}] for that one seed")
        return value

    @field_validator("seeds")
    @classmethod
    def _seeds_differ(cls, value: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(value)) < len(value):
            raise ValueError(f"seeds should differ; found {list(value)}")
        return value


@dataclass(frozen=True)
class Trial:
    """One cell of a study."""

    study: str
    setup: Setup
    recipe: Recipe
    fusions: tuple[Spec, ...]
    seed: int
    options: Options


@dataclass(frozen=True)
class Study:
    """A checked study: its options, recipes, and one setup per cell of its grid."""

    options: Options
    setups: tuple[Setup, ...]
    recipes: tuple[Recipe, ...]
    fusions: tuple[Spec, ...]
    resolved: dict[str, Any]  # as written to RUN/study.yaml

    @property
    def name(self) -> str:
        return self.options.name

    def trials(self) -> list[Trial]:
        """Every cell once; a pooled recipe does not depend on how data is dealt to clients."""
        found: dict[str, Trial] = {}
        cells = itertools.product(self.setups, self.recipes, self.options.seeds)
        for dealt, recipe, seed in cells:
            setup = dealt.for_recipe(recipe)
            if recipe.pooled:
                setup = setup.model_copy(update={"partition": _pooled(recipe.copies)})
            if recipe.pooled == "public":
                public = setup.data.model_copy(update={"dealt": "public"})
                setup = setup.model_copy(update={"data": public})
            rules = recipe.fusions_with(self.fusions)
            trial = Trial(self.name, setup, recipe, rules, seed, self.options)
            found.setdefault(f"{setup.model_dump_json()} {recipe.name} {seed}", trial)
        return list(found.values())


POOLED = PartitionConfig.model_validate({"scheme": "iid", "clients": 1})


def _pooled(copies: int) -> PartitionConfig:
    if copies == 1:
        return POOLED
    return PartitionConfig.model_validate({"scheme": "copies", "clients": copies})


def load_study(source: Path | str | Mapping[str, Any], overrides: Sequence[str] = ()) -> Study:
    """The study in a YAML file or a mapping, with dotted `key=value` overrides."""
    if isinstance(source, Mapping):
        raw, folder = dict(source), Path()
    else:
        path = Path(source)
        raw, folder = absolute_paths(read_yaml(path), path.parent), path.parent
    for override in overrides:
        raw = _override(raw, override)
    return check_study(absolute_paths(raw, Path.cwd()), folder)


def check_study(raw: Mapping[str, Any], folder: Path) -> Study:
    """`raw` with every key and value checked; relative paths are taken from `folder`."""
    known = [*keys(Options), *keys(Setup), "recipes", "fusions"]
    for key in raw:
        if key not in known:
            inside = " It belongs in a recipe." if key in keys(Recipe) else ""
            raise AccordError(
                f"unknown key {key!r}{nearest(str(key), known) or '.'}{inside} "
                f"A study has: {', '.join(known)}."
            )
    options = parse(Options, {k: v for k, v in raw.items() if k in keys(Options)}, "")
    sections = {key: _section(raw, key) for key in keys(Setup) if raw.get(key) is not None}
    setups = tuple(_grid(sections))
    recipes = _recipes(raw.get("recipes"), options, folder)
    fusions = _fusions(raw.get("fusions"))
    for recipe in recipes:
        _refuse_same_labels((*recipe.fusion, *fusions), recipe.name)
        for setup in setups:
            setup.for_recipe(recipe)
    resolved = {
        **options.model_dump(mode="json"),
        **_resolved_sections(sections, setups[0]),
        "recipes": [recipe.model_dump(mode="json", exclude_none=True) for recipe in recipes],
        "fusions": list(fusions),
    }
    return Study(options, setups, recipes, fusions, resolved)


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
                f"two recipes are named {name!r}; give one another name with `as: …`."
            )
    if options.bounds:
        recipes += [resolve(name, folder) for name in BOUNDS if name not in names]
    return tuple(recipes)


def _fusions(entries: Any) -> tuple[Spec, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        entries = [entries]
    return tuple(fusion_spec(entry, "fusions") for entry in entries)


def _refuse_same_labels(specs: Sequence[Spec], recipe: str) -> None:
    """One name in the results is one rule; the same rule asked for twice is no harm."""
    known: dict[str, Spec] = {}
    for spec in specs:
        if known.setdefault(spec["as"], spec) != spec:
            raise AccordError(
                f"two different fusions of recipe {recipe!r} are named {spec['as']!r}; give one "
                "another name with `as: …`."
            )


def _section(raw: Mapping[str, Any], key: str) -> dict[str, Any]:
    if not isinstance(raw[key], Mapping):
        raise AccordError(f"{key!r}: expected a mapping of keys, found {raw[key]!r}.")
    return dict(raw[key])


def grid_axes(sections: Mapping[str, Any]) -> dict[str, list[Any]]:
    """`section.key` → values, of every list at a key that takes one value."""
    return {
        f"{section}.{key}": value
        for section in keys(Setup)
        for key, value in (sections.get(section) or {}).items()
        if isinstance(value, list) and not takes_list(f"{section}.{key}")
    }


def _grid(sections: dict[str, dict[str, Any]]) -> Iterator[Setup]:
    """The setup of each cell."""
    axes = grid_axes(sections)
    for name, values in axes.items():
        if not values or len({repr(value) for value in values}) < len(values):
            raise AccordError(f"{name!r}: a grid axis needs different values; found {values!r}.")
    for cell in itertools.product(*axes.values()):
        chosen = dict(zip(axes, cell, strict=True))
        filled = {
            section: {key: chosen.get(f"{section}.{key}", value) for key, value in values.items()}
            for section, values in sections.items()
        }
        yield parse(Setup, filled, "")


def takes_list(name: str) -> bool:
    """Whether a key's own type is a sequence, so that a list there is one value."""
    section, _, key = name.partition(".")
    if section not in Setup.model_fields:
        return False
    model = Setup.model_fields[section].annotation
    field = model.model_fields.get(key) if isinstance(model, type) else None
    annotation = field.annotation if field else None
    return "tuple" in str(annotation) or any("tuple" in str(a) for a in get_args(annotation))


def _resolved_sections(raw: dict[str, dict[str, Any]], first: Setup) -> dict[str, Any]:
    """The sections with defaults filled in and the axes as lists again."""
    sections: dict[str, Any] = first.model_dump(mode="json")
    axes = grid_axes(raw)
    if "partition.scheme" in axes:
        # Each scheme has keys of its own; the first one's defaults would not fit the others.
        sections["partition"] = dict(raw["partition"])
    for name, values in axes.items():
        section, key = name.split(".")
        sections[section][key] = values
    return sections


def _override(raw: dict[str, Any], override: str) -> dict[str, Any]:
    """`raw` with one dotted override such as `budget.epochs=3` laid over it."""
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
            raise AccordError(f"{override!r}: {first!r} holds {inner!r}, which has no keys.")
        value = _override(dict(inner), f"{rest}={text}")
    return {**raw, first: value}
