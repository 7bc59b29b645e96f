"""Makes a checked recipe from an entry of a study.

An entry is a name, a path, or a recipe with changes: `{use: etf-fixed, balance: {lambda: 10},
as: lambda-10}`. Here `balance` belongs to the recipe's only alignment term. If a recipe has several
alignment terms, each has its own balance: `align: {anchors: {balance: …}, …}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.study.check import check
from accord.study.library import read_recipe
from accord.study.recipe import Recipe
from accord.study.syntax import in_full, lay_over


def resolve(use: Any, folder: Path) -> Recipe:
    """The recipe of a study's entry: a name, an alias, a file, or a mapping with one of these."""
    if isinstance(use, str):
        use = {"use": use}
    if isinstance(use, Mapping) and "use" not in use and "name" in use:
        # The entry is a whole recipe, as in a record.
        return check(in_full(dict(use), folder), f"recipes.{use['name']}")
    if not isinstance(use, Mapping) or not isinstance(use.get("use"), str):
        raise AccordError(
            f"'recipes': expected names, or mappings with 'use' and perhaps 'as'; found {use!r}."
        )
    changes = {key: value for key, value in use.items() if key not in ("use", "as")}
    base = read_recipe(use["use"], folder)
    raw = lay_over(base, in_full(changes, folder), f"recipes.{use['use']}")
    if changes and isinstance(raw["name"], str):  # any other name is refused below
        raw["name"] += "-changed"  # its rows must differ from those of the unchanged recipe
        raw["alias"] = None  # the alias names the unchanged recipe only
    raw["name"] = use.get("as", raw["name"])
    return check(raw, f"recipes.{raw['name']}")
