"""The recipes that other recipes of a study stand on: they begin with its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.fusion.base import Merge
from accord.study.recipe import Recipe
from accord.study.resolve import resolve


def with_bases(recipes: Sequence[Recipe], folder: Path) -> list[Recipe]:
    """The recipes, each after the recipe that it stands on, which is added if it is missing."""
    listed = {recipe.name: recipe for recipe in recipes}
    found: dict[str, Recipe] = {}
    for recipe in recipes:
        name = recipe.stands_on
        if name is not None:
            base = listed.get(name) or resolve(name, folder)
            _check_base(recipe, base)
            found.setdefault(name, base)
        found.setdefault(recipe.name, recipe)
    return list(found.values())


def _check_base(recipe: Recipe, base: Recipe) -> None:
    """Refuses to stand on a recipe that makes no net of all clients."""
    rule = base.fusion[0].rule
    one_net = isinstance(rule, Merge) and not rule.personal and rule.of == "nets"
    if base.uploads != "nets" or base.pooled or not one_net:
        raise AccordError(
            f"recipes.{recipe.name}: it stands on {base.name!r}, whose first fusion "
            f"({base.fusion[0].label}) makes no single net of the clients' nets. Name a recipe "
            "such as public-rounds or fedavg."
        )
