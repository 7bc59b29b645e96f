"""From a study's entry to a checked recipe.

A study uses a recipe by name, by path, or with changes: `{use: etf-fixed, balance: {lambda: 10},
as: lambda-10}`. There, `balance` is that of the recipe's only alignment term; with several, each
has its own: `align: {anchors: {balance: …}, …}`.
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
    base = read_recipe(use["use"], folder)
    raw = lay_over(base, in_full(changes, folder), f"recipes.{use['use']}")
    if changes:
        raw["name"] += "-changed"  # its rows must not pass for the recipe's own
        raw["alias"] = None  # it is no longer what the notes call so
    raw["name"] = use.get("as", raw["name"])
    return check(raw, f"recipes.{raw['name']}")
