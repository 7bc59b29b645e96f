"""Explains one recipe, one fusion or one block of a map, for `accord recipes NAME`."""

from __future__ import annotations

from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from accord.balance import balances
from accord.core.budget import Budget
from accord.core.config import Config
from accord.core.mergenet import MergeNetConfig
from accord.core.parts import AUTOMATIC, describe, summary
from accord.fusion import fusions
from accord.methods import methods
from accord.nets.maps import MapConfig, blocks
from accord.nets.settings import TeacherConfig
from accord.objective import anchor_kinds, terms
from accord.objective.bank import BankConfig
from accord.report.tables import plain_table
from accord.study.library import shipped
from accord.study.recipe import ClosedFormRecipe, Recipe, TrainingRecipe
from accord.study.resolve import resolve


def show_recipe(name: str) -> RenderableType:
    """A recipe and its parts, or a fusion, or a block of a map, with all parameters."""
    if name in fusions and name not in shipped():
        hint = f"accord fuse RUN --fusion '{{use: {name}, as: my-name}}'"
        return _show_part(name, fusions.get(name), hint)
    if name in blocks and name not in shipped():
        needed = [key for key, f in blocks.get(name).model_fields.items() if f.is_required()]
        said = ", ".join([f"use: {name}", *(f"{key}: …" for key in needed)])
        return _show_part(name, blocks.get(name), f"In a recipe: map: {{blocks: [{{{said}}}]}}")
    recipe = resolve(name, Path())
    alias = f" ({recipe.alias} in the research notes, docs/notes.md)" if recipe.alias else ""
    rows = [
        (key, str(getattr(recipe, key)), type(recipe).model_fields[key].description or "")
        for key in plain_keys(recipe)
    ]
    meanings = dict(describe(Budget))
    if isinstance(recipe, TrainingRecipe):
        rows += [
            (f"budget.{key}", str(value), meanings[key] or "replaces the study's value")
            for key, value in recipe.budget.items()
        ]
    for key, kind, spec in parts(recipe):
        rows.append((key, "", summary(kind)))
        for parameter, meaning in describe(kind):
            if meaning == AUTOMATIC:
                continue
            rows.append((f"{key}.{parameter}", str(spec.get(parameter)), meaning))
    table = plain_table(("key", "value", "meaning"), rows)
    used = name if name.endswith((".yaml", ".yml")) else recipe.name
    hint = f"In a study: {{use: {used}, {example(recipe)}as: my-name}}"
    return Group(Text(recipe.name + alias), Text(recipe.about), table, Text(hint))


def _show_part(name: str, part: type[Config], hint: str) -> RenderableType:
    """A fusion, or a block of a map, with all parameters."""
    fields = part.model_fields
    defaults = {
        key: "(needed)" if field.is_required() else str(field.default)
        for key, field in fields.items()
    }
    rows = [(key, defaults.get(key, ""), meaning) for key, meaning in describe(part)]
    said = Text(" ".join((part.__doc__ or "").split()))
    if not rows:
        return Group(Text(name), said, Text(hint))
    return Group(Text(name), said, plain_table(("key", "default", "meaning"), rows), Text(hint))


def plain_keys(recipe: Recipe) -> list[str]:
    """The keys of a recipe that hold a single value."""
    simple = (bool, int, str)
    told = {"name", "alias", "about"}
    fields = [key for key in type(recipe).model_fields if key not in told]
    return sorted(key for key in fields if isinstance(getattr(recipe, key), simple))


Parts = list[tuple[str, type[Config], dict[str, object]]]


def parts(recipe: Recipe) -> Parts:
    """(key in the recipe, part, its parameters) of all parts of the recipe."""
    found: Parts = []
    if isinstance(recipe, ClosedFormRecipe):
        found += _parts_of_map(recipe)
    if isinstance(recipe, TrainingRecipe):
        found += _parts_of_training(recipe)
    for fusion in recipe.fusion:
        found.append((f"fusion {fusion.label}", type(fusion.rule), fusion.to_json()))
    return found


def _parts_of_map(recipe: ClosedFormRecipe) -> Parts:
    used = ", ".join(spec["use"] for spec in recipe.map.blocks)
    found: Parts = [("map", MapConfig, {**recipe.map.model_dump(), "blocks": used})]
    for spec in recipe.map.blocks:
        found.append((f"map {spec['use']}", blocks.get(spec["use"]), spec))
    return found


def _parts_of_training(recipe: TrainingRecipe) -> Parts:
    found: Parts = []
    for name, spec in recipe.objective.items():
        found.append((f"objective.{name}", terms.get(name), spec))
    if recipe.anchors:
        found.append(("anchors", anchor_kinds.get(recipe.anchors["use"]), recipe.anchors))
    for name, spec in recipe.align.items():
        balance = spec["balance"]
        found.append((f"align.{name}", terms.get(name), spec))
        found.append((f"align.{name}.balance", balances.get(balance["use"]), balance))
    if recipe.bank:
        found.append(("bank", BankConfig, recipe.bank.model_dump()))
    if recipe.several_rounds:
        found.append(("method", methods.get(recipe.method_name), recipe.method))
    if recipe.uses_mergenet:
        values = {**MergeNetConfig().model_dump(), **recipe.mergenet}
        found.append(("mergenet", MergeNetConfig, values))
    if recipe.may_use_teacher:
        values = {**TeacherConfig().model_dump(), **recipe.teacher}
        found.append(("teacher", TeacherConfig, values))
    return found


def example(recipe: Recipe) -> str:
    """An example of a change of this recipe, as it is written in a study."""
    if not isinstance(recipe, TrainingRecipe):
        return "map: {blocks: [{use: patches, count: 400}]}, " if not recipe.stands_on else ""
    balances_used = [spec["balance"] for spec in recipe.align.values()]
    if len(balances_used) == 1 and "lambda" in balances_used[0]:
        return "balance: {lambda: 10}, "
    if "contrast" in recipe.objective:
        return "objective: {contrast: {temperature: 0.5}}, "
    if recipe.uses_mergenet:
        return "mergenet: {start_round: 1}, "
    if recipe.make_method().open_rounds:
        return "method: {turns: 3}, "
    if recipe.several_rounds:
        return "method: {count: 10}, "
    return "fusion: {use: outputs, weights: sqrt}, "
