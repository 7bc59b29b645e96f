"""Recipes: short YAML files that name and parametrise registered parts.

A recipe composes an objective (local terms), anchors, alignment terms with a balance each, and a
fusion. It may extend another one. A study uses a recipe by name, by path, or with changes:
`{use: etf-fixed, balance: {lambda: 10}, as: lambda-10}`. There, `balance` is that of the recipe's
only alignment term; with several, each says its own: `align: {anchors: {balance: …}, …}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import Field

from accord.balance import balances
from accord.bank import BankConfig
from accord.budget import Budget
from accord.config import Config, keys, parse
from accord.errors import AccordError, nearest
from accord.fusion import fusions
from accord.fusion.base import Bound, rule_of
from accord.maps import MapConfig
from accord.objective import Term, anchor_kinds, make_alignment, make_term
from accord.parts import make_part, part_spec
from accord.spelling import Spec, in_full, lay_over
from accord.sums import Packing
from accord.yamls import read_yaml

NAME = r"^[A-Za-z0-9][A-Za-z0-9._-]*$"  # names of recipes and fusions become names of files


class Recipe(Config):
    """A resolved recipe: every part checked, every parameter spelled out."""

    name: str = Field(pattern=NAME)
    alias: str | None = Field(None, description="its name in the notes")
    about: str = ""
    views: int = Field(1, ge=1, le=8, description="augmented views per image and step")
    batches: Literal["shuffled", "balanced"] = Field(
        "shuffled", description="every image once an epoch, or every class equally often"
    )
    head: str = Field(
        "linear", description="linear, prototypes (z Pᵀ), or anchors (z Aᵀ, never trained)"
    )
    pooled: bool | Literal["public"] = Field(
        False, description="all clients' images in one place, or the public ones alone: a bound"
    )
    copies: int = Field(
        1, ge=1, description="nets of a pooled recipe, which differ in their batches: an ensemble"
    )
    budget: Spec = Field(default={}, description="laid over the study's budget")
    map: MapConfig | None = Field(
        None, description="fixed features instead of a net: the closed form, nothing trains"
    )
    packing: Packing = Field(
        "float32", description="of the scatter in an upload, where there is a map"
    )
    objective: dict[str, Spec] = Field(default={}, description="local terms, summed to L_loc")
    anchors: Spec | None = Field(None, description="what prototypes are aligned to")
    align: dict[str, Spec] = Field(
        default={}, description="alignment terms, each with the balance of L_loc and itself"
    )
    single_class: tuple[str, ...] = Field(
        (), description="local terms of a client that holds one class; none named: all of them"
    )
    alignment_epochs: int = Field(
        0, ge=0, description="first epochs that minimise the alignment terms alone"
    )
    bank: BankConfig | None = Field(None, description="public features that clients are given")
    fusion: tuple[Spec, ...] = Field(min_length=1, description="uploads → one predictor")

    def fusions_with(self, more: Iterable[Spec]) -> tuple[Spec, ...]:
        """Its own fusions and those of `more` that it takes."""
        taken = [spec for spec in more if self.takes(spec)]
        return tuple({spec["as"]: spec for spec in (*self.fusion, *taken)}.values())

    def takes(self, spec: Spec) -> bool:
        """Whether a fusion makes sense of what its clients upload; a bound is what it is."""
        own = {entry["use"] for entry in self.fusion}
        bound = self.pooled or all(issubclass(fusions.get(name), Bound) for name in own)
        kind = "nets" if self.map is None else "sums"
        return spec["use"] in own or (rule_of(spec).of == kind and not bound)

    @property
    def training(self) -> Spec:
        """The part of the recipe that acts at a client, as it stands in a briefing."""
        return self.model_dump(mode="json", include=set(SUMMING if self.map else TRAINING))


TRAINED = ("objective", "align", "anchors", "single_class", "alignment_epochs", "bank")
TRAINING = (
    *("views", "batches", "head", "objective", "single_class", "anchors", "align"),
    "alignment_epochs",
)
SUMMING = ("map", "packing")
IDLE_WITH_MAP = ("views", "batches", "head", "budget", "copies")
IDLE_WITHOUT_MAP = ("packing",)


def resolve(use: Any, folder: Path) -> Recipe:
    """The recipe that a study's entry asks for: a name, an alias, a file, or a mapping of these."""
    if isinstance(use, str):
        use = {"use": use}
    if isinstance(use, Mapping) and "use" not in use and "name" in use:
        # Spelled out, as in a record.
        return check(in_full(dict(use), folder), f"recipes.{use['name']}")
    if not isinstance(use, Mapping) or not isinstance(use.get("use"), str):
        raise AccordError(
            f"'recipes': expected names, or mappings with 'use' (and 'as'); found {use!r}."
        )
    changes = {key: value for key, value in use.items() if key not in ("use", "as")}
    raw = lay_over(_read(use["use"], folder), in_full(changes, folder), f"recipes.{use['use']}")
    if changes:
        raw["name"] += "-changed"  # its rows must not pass for the recipe's own
        raw["alias"] = None  # it is no longer what the notes call so
    raw["name"] = use.get("as", raw["name"])
    return check(raw, f"recipes.{raw['name']}")


def check(raw: Spec, where: str) -> Recipe:
    """Builds every part once, so that a mistake shows before anything trains."""
    try:
        recipe = parse(Recipe, lay_over({}, raw, where), where)
    except AccordError as error:
        if where in str(error):
            raise
        raise AccordError(f"{where}: {error}") from None
    objective = {
        name: _spelled_out(make_term(name, spec, f"{where}.objective.{name}"))
        for name, spec in recipe.objective.items()
    }
    checked: Spec = {
        "objective": objective,
        "align": {
            name: {
                **_without_weight(make_alignment(name, spec, f"{where}.align.{name}")),
                "balance": _balance(spec, objective, f"{where}.align.{name}.balance"),
            }
            for name, spec in recipe.align.items()
        },
        "fusion": tuple(fusion_spec(spec, f"{where}.fusion") for spec in recipe.fusion),
    }
    if recipe.anchors:
        part = make_part(anchor_kinds, recipe.anchors, f"{where}.anchors")
        checked["anchors"] = part_spec(recipe.anchors["use"], part)
    if ("anchors" in recipe.align or recipe.head == "anchors") and not recipe.anchors:
        needs = "the term" if "anchors" in recipe.align else "the head"
        raise AccordError(f"{where}.anchors is missing: {needs} 'anchors' needs one, e.g. etf.")
    unknown = [name for name in recipe.single_class if name not in recipe.objective]
    if unknown:
        raise AccordError(
            f"{where}.single_class: {unknown[0]!r} is no term of the objective; found "
            f"{', '.join(recipe.objective)}."
        )
    twice = sorted(set(recipe.objective) & set(recipe.align))
    if twice:
        raise AccordError(
            f"{where}: {twice[0]!r} is in both objective and align; expected it in one of them. "
            f"Write objective: {{{twice[0]}: null}} to have it weighed by a balance alone."
        )
    _check_kind(recipe, where)
    unknown = [key for key in recipe.budget if key not in keys(Budget)]
    if unknown:
        raise AccordError(
            f"{where}.budget: unknown key {unknown[0]!r}{nearest(unknown[0], keys(Budget)) or '.'}"
        )
    parse(Budget, recipe.budget, f"{where}.budget")
    _refuse_two_on_local(checked["align"], where)
    checked["bank"] = _bank(recipe, where)
    if recipe.alignment_epochs and not recipe.align:
        raise AccordError(
            f"{where}.alignment_epochs: epochs of alignment alone need a term in `align`; found "
            "none."
        )
    return recipe.model_copy(update=checked)


def _bank(recipe: Recipe, where: str) -> BankConfig | None:
    """The bank's settings where a term uses one; one that nobody uses is a mistake."""
    local = [make_term(name, spec, where) for name, spec in recipe.objective.items()]
    align = [make_alignment(name, spec, where) for name, spec in recipe.align.items()]
    if any(term.uses_bank() for term in (*local, *align)):
        return recipe.bank or BankConfig()
    if recipe.bank:
        raise AccordError(
            f"{where}.bank: no term of the recipe uses it. Set objective.contrast.bank to others, "
            "or add an alignment term such as mmd; or drop the bank."
        )
    return None


def _check_kind(recipe: Recipe, where: str) -> None:
    """A recipe either trains nets or sums fixed features, and fuses what it has."""
    if recipe.map is None and not recipe.objective:
        raise AccordError(f"{where}.objective: expected at least one term; found none.")
    if recipe.copies > 1 and not recipe.pooled:
        raise AccordError(
            f"{where}.copies: only where images are pooled can there be several nets of them all; "
            f"found {recipe.copies}. Set pooled, or drop copies."
        )
    training = [key for key in TRAINED if getattr(recipe, key)]
    if recipe.map is not None and training:
        raise AccordError(
            f"{where}: with a `map` nothing trains; found {training[0]!r} as well. Drop one."
        )
    plain = Recipe.model_fields
    idle = IDLE_WITH_MAP if recipe.map else IDLE_WITHOUT_MAP
    said = [key for key in idle if getattr(recipe, key) != plain[key].default]
    if said:
        other = "only where nets train" if recipe.map else "only where there is a `map`"
        raise AccordError(f"{where}.{said[0]}: it means something {other}. Drop it.")
    kind = "nets" if recipe.map is None else "sums"
    for spec in recipe.fusion:
        if rule_of(spec).of != kind:
            raise AccordError(
                f"{where}.fusion: {spec['use']!r} fuses {rule_of(spec).of}, and its "
                f"clients upload {kind}. Expected one of: {', '.join(_fusing(kind))}."
            )


def _fusing(kind: str) -> list[str]:
    return [name for name in fusions.names() if rule_of({"use": name}).of == kind]


def _refuse_two_on_local(align: Mapping[str, Spec], where: str) -> None:
    """A rule that mixes ∇L_loc with its own gradient must be the only one that changes it."""
    rules = {name: balances.get(spec["balance"]["use"]) for name, spec in align.items()}
    mixing = [name for name, rule in rules.items() if rule.mixes_gradients]
    changing = [n for n, rule in rules.items() if rule.mixes_gradients or rule.weighs_local]
    if mixing and len(changing) > 1:
        raise AccordError(
            f"{where}.align: the balance of {mixing[0]!r} mixes the local gradient, and so no "
            f"other may change it; found {', '.join(changing)}. Give the others a rule that leaves "
            "the local loss as it is, such as fixed."
        )


def _spelled_out(term: Term) -> Spec:
    return term.model_dump(mode="json", by_alias=True)


def _without_weight(term: Term) -> Spec:
    return {key: value for key, value in _spelled_out(term).items() if key != "weight"}


def _balance(spec: Spec, objective: Mapping[str, Spec], where: str) -> Spec:
    """The balance of an alignment term, in full."""
    if not spec or "balance" not in spec:
        raise AccordError(
            f"{where} is missing: an alignment term needs a balance, e.g. "
            "balance: {use: fixed, lambda: 5}."
        )
    raw = spec["balance"]
    rule = make_part(balances, raw, where)
    if rule.watched() is not None and rule.watched() not in objective:
        raise AccordError(
            f"{where}: this rule watches the local term {rule.watched()!r}; found "
            f"{', '.join(objective)}. Set its `watch` to one of these."
        )
    return part_spec(raw if isinstance(raw, str) else raw["use"], rule)


def fusion_spec(spec: Any, where: str) -> Spec:
    """A fusion entry in full: {use, as, every parameter}; `as` is its name in the results."""
    spec = dict(spec) if isinstance(spec, Mapping) else {"use": spec}
    label = spec.pop("as", spec.get("use"))
    part = make_part(fusions, spec, where)
    if not isinstance(label, str) or not re.fullmatch(NAME, label):
        raise AccordError(f"{where}: `as: {label}` should be letters, digits, dots and dashes.")
    return {**part_spec(spec["use"], part), "as": label}


def _read(name: str, folder: Path, heirs: tuple[str, ...] = ()) -> Spec:
    """A recipe's raw mapping, bases merged in."""
    if name in heirs:
        raise AccordError(f"recipe {name!r} extends itself: {' → '.join((*heirs, name))}.")
    if name.endswith((".yaml", ".yml")):
        raw = in_full(read_yaml(folder / name), (folder / name).parent)
    else:
        raw = in_full(_shipped_file(_shipped_name(name)), folder)
    base = raw.pop("extends", None)
    if base is not None:
        inherited = _read(str(base), folder, (*heirs, name))
        raw = lay_over(
            {k: v for k, v in inherited.items() if k not in ("alias", "about")}, raw, name
        )
    else:
        raw = lay_over({}, raw, name)
    unknown = sorted(set(raw) - set(keys(Recipe)))
    if unknown:
        known = [*keys(Recipe), "balance", "extends"]
        raise AccordError(
            f"recipe {name!r}: unknown key {unknown[0]!r}{nearest(unknown[0], known) or '.'} "
            f"Known: {', '.join(known)}."
        )
    return raw


@cache
def shipped() -> dict[str, str | None]:
    """Name → alias of every recipe that comes with Accord."""
    files = resources.files("accord.recipes").iterdir()
    names = sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))
    return {name: _shipped_file(name).get("alias") for name in names}


def _shipped_name(name: str) -> str:
    by_alias = {alias: real for real, alias in shipped().items() if alias}
    real = by_alias.get(name, name)
    if real not in shipped():
        known = [*shipped(), *by_alias]
        hint = nearest(name, known) or "."
        raise AccordError(
            f"unknown recipe {name!r}{hint} Known: {', '.join(known)}; or the path of a recipe "
            "file that ends in .yaml."
        )
    return real


def _shipped_file(name: str) -> Spec:
    text = resources.files("accord.recipes").joinpath(f"{name}.yaml").read_text("utf-8")
    raw: Spec = yaml.safe_load(text)
    return {"name": name, **raw}
