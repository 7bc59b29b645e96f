"""Lists recipes and datasets. This module does not import torch, so that it starts quickly."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import RenderableType

from accord.report.tables import plain_table
from accord.study.library import read_recipe, shipped

if TYPE_CHECKING:
    from accord.data.inventory import Availability


def show_recipes() -> RenderableType:
    rows = []
    for name, alias in shipped().items():
        recipe = read_recipe(name, Path())
        fusion = ", ".join(spec.get("as", spec["use"]) for spec in recipe["fusion"])
        rows.append((name, alias or "", fusion, recipe["about"].strip()))
    return plain_table(("recipe", "alias", "fusion", "description"), rows)


def show_datasets(entries: list[Availability]) -> RenderableType:
    rows = [
        (entry.name, "yes" if entry.found else "–", entry.where, entry.note) for entry in entries
    ]
    return plain_table(("dataset", "found", "path, or where to put which file", "note"), rows)
