"""The recipes that other recipes of a study stand on: they begin with its result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.fusion.base import Merge
from accord.study.recipe import ClosedFormRecipe, Recipe
from accord.study.resolve import resolve

LONGEST = 20  # recipes of a chain; the header of the last one's briefing describes all of them


def with_bases(recipes: Sequence[Recipe], folder: Path) -> list[Recipe]:
    """The recipes, each after the recipe that it stands on, which is added if it is missing."""
    listed = {recipe.name: recipe for recipe in recipes}
    found: dict[str, Recipe] = {}

    def add(recipe: Recipe, above: tuple[str, ...] = ()) -> None:
        name = recipe.stands_on
        if recipe.name in above:
            raise AccordError(
                f"recipes.{recipe.name}: it stands on itself: {' → '.join((*above, recipe.name))}."
            )
        if len(above) >= LONGEST:
            raise AccordError(
                f"recipes.{above[0]}: expected at most {LONGEST} recipes that stand on each other; "
                f"found more: {' → '.join(above[:3])} → …. Shorten the chain."
            )
        if name is not None:
            base = listed.get(name) or resolve(name, folder)
            _check_base(recipe, base)
            add(base, (*above, recipe.name))
        found.setdefault(recipe.name, recipe)

    for recipe in recipes:
        add(recipe)
    return list(found.values())


def _check_base(recipe: Recipe, base: Recipe) -> None:
    """Refuses to stand on a recipe whose result cannot be used, or that has another name."""
    if recipe.pooled:
        raise AccordError(
            f"recipes.{recipe.name}: a recipe with `pooled` has no clients and cannot stand on "
            f"{recipe.stands_on!r}, whose clients train or sum. Remove pooled."
        )
    if base.name != recipe.stands_on:
        raise AccordError(
            f"recipes.{recipe.name}: expected the name of the recipe that it stands on; found "
            f"{str(recipe.stands_on)[:100]!r}, which is named {base.name!r}. Write this name, and "
            "list a recipe of your own under `recipes` too."
        )
    rule = base.fusion[0].rule
    one_net = isinstance(rule, Merge) and not rule.personal
    needed = recipe.map.below if isinstance(recipe, ClosedFormRecipe) else rule.of
    if base.pooled or not one_net or rule.of != needed:
        examples = {"nets": "public-rounds or fedavg", "sums": "closed-form or closed-form-public"}
        raise AccordError(
            f"recipes.{recipe.name}: it stands on {base.name!r}, whose first fusion "
            f"({base.fusion[0].label}) makes no single net of the clients' {needed}. Name a recipe "
            f"such as {examples[needed]}."
        )
