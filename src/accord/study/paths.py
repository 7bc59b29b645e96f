"""Makes the relative paths of a study absolute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any


def absolute_paths(raw: dict[str, Any], folder: Path) -> dict[str, Any]:
    """`raw` with absolute paths. `folder` is the study's folder, or the current one for overrides.

    The keys with paths are `data.path`, `teacher.model`, `images` of a fusion, and in the changes
    of a recipe `bank.source`, `teacher.model`, `labels_model` and the `model` of a map's block.
    """
    if "teacher" in raw:
        raw = {**raw, "teacher": _absolute(raw["teacher"], "model", folder)}
    if isinstance(raw.get("recipes"), list):
        recipes = [
            absolute_recipe(entry, folder) if isinstance(entry, Mapping) else entry
            for entry in raw["recipes"]
        ]
        raw = {**raw, "recipes": recipes}
    if isinstance(raw.get("fusions"), list):
        raw = {**raw, "fusions": [absolute_images(entry, folder) for entry in raw["fusions"]]}
    return {**raw, "data": _absolute(raw["data"], "path", folder)} if "data" in raw else raw


def absolute_images(entry: Any, folder: Path) -> Any:
    """A fusion with an absolute path in `images`; a relative one starts from `folder`."""
    return _absolute(entry, "images", folder)


def _absolute(entry: Any, key: str, folder: Path) -> Any:
    """`entry` with an absolute path, or a list of them, at `key`; other values stay as they are."""
    value = entry.get(key) if isinstance(entry, Mapping) else None
    if isinstance(value, list):
        return {**entry, key: [_path(one, folder) for one in value]}
    return {**entry, key: _path(value, folder)} if isinstance(value, str) and value else entry


def _path(value: Any, folder: Path) -> Any:
    return str((folder / Path(value).expanduser()).absolute()) if isinstance(value, str) else value


def absolute_recipe(entry: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """A recipe, or changes of a recipe, with absolute paths; relative ones start from `folder`."""
    found = dict(entry)
    if "bank" in found:
        found["bank"] = _absolute(found["bank"], "source", folder)
    if "teacher" in found:
        found["teacher"] = _absolute(found["teacher"], "model", folder)
    if isinstance(found.get("map"), Mapping) and isinstance(found["map"].get("blocks"), list):
        blocks = [_absolute(block, "model", folder) for block in found["map"]["blocks"]]
        found["map"] = {**found["map"], "blocks": blocks}
    found = dict(_absolute(found, "labels_model", folder))
    rules = found.get("fusion")
    if isinstance(rules, list):
        found["fusion"] = [absolute_images(rule, folder) for rule in rules]
    elif "fusion" in found:
        found["fusion"] = absolute_images(rules, folder)
    return found
