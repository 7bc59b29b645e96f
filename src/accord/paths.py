"""Relative paths in a study: meant from where they are written, kept as paths from anywhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.bank import absolute_source


def absolute_paths(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Relative paths are meant from `folder`: the study's own, or where one types.

    Those are `data.path`, `bank.source` in a recipe's changes, and `images` of a fusion.
    """
    if isinstance(raw.get("recipes"), list):
        raw = {**raw, "recipes": [_absolute_bank(entry, folder) for entry in raw["recipes"]]}
    if isinstance(raw.get("fusions"), list):
        raw = {**raw, "fusions": [absolute_images(entry, folder) for entry in raw["fusions"]]}
    data = raw.get("data")
    if not isinstance(data, Mapping) or not isinstance(data.get("path"), str | list):
        return raw

    def absolute(path: Any) -> Any:
        if not isinstance(path, str):
            return path
        return str((folder / Path(path).expanduser()).absolute())

    path = data["path"]
    found = [absolute(one) for one in path] if isinstance(path, list) else absolute(path)
    return {**raw, "data": {**data, "path": found}}


def absolute_images(entry: Any, folder: Path) -> Any:
    """A fusion whose `images` are a path from `folder`, with a path from anywhere."""
    if not isinstance(entry, Mapping) or not isinstance(entry.get("images"), str):
        return entry
    return {**entry, "images": str((folder / Path(entry["images"]).expanduser()).absolute())}


def _absolute_bank(entry: Any, folder: Path) -> Any:
    if not isinstance(entry, Mapping) or "bank" not in entry:
        return entry
    return {**entry, "bank": absolute_source(entry["bank"], folder)}
