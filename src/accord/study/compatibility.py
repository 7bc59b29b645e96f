"""Whether a study can be added to an existing record.

Later studies may add seeds, recipes, fusions and values of grid axes. They may not change a value
that has no column in results.csv, because two different results would then have the same row.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.study.settings import takes_list

Resolved = dict[str, Any]
# Keys that change no result: the latest value is kept.
LATEST = ("references", "device", "keep_checkpoints", "track")
HAVE_COLUMNS = ("data.name", "partition.scheme", "partition.alpha", "partition.clients")
# Images and models are identified by their content, not by their path.
BY_CONTENT = ("data.path", "teacher.model")
# Trials that leave out different clients have a column that says which one.
FREE = (*HAVE_COLUMNS, *BY_CONTENT, "partition.leave_out")


def joined(old: Resolved, new: Resolved, path: Path) -> Resolved:
    """One study with everything of both. Raises AccordError if they contradict each other."""
    whole: Resolved = {}
    for key, now in new.items():
        before = old.get(key)
        if key == "recipes":
            whole[key] = _by_name(before or [], now, "name", path)
        elif key == "fusions":
            whole[key] = _by_name(before or [], now, "as", path)
        elif key == "seeds":
            whole[key] = _union(before, now)
        elif key in LATEST:
            whole[key] = now
        elif isinstance(now, Mapping) and isinstance(before, Mapping):
            names = dict.fromkeys([*before, *now])
            whole[key] = {
                name: _value(f"{key}.{name}", before.get(name), now.get(name), path)
                for name in names
            }
        else:
            whole[key] = _value(key, before, now, path)
    return whole


def _value(name: str, before: Any, now: Any, path: Path) -> Any:
    """The value of a key in the joined study.

    A grid axis may get more values or be used in part, and the keys of `FREE` may get any value.
    """
    single = not isinstance(before, list) and not isinstance(now, list)
    moved = name in BY_CONTENT and single and None not in (before, now)
    if before == now or moved:
        return now
    if not takes_list(name):
        union = _union(before, now)
        if name in FREE or len(union) in (len(_union([], before)), len(_union([], now))):
            return union
    raise AccordError(
        f"{path} was made by another study: {name} was {before!r}, now it is {now!r}. Choose "
        "another folder for the record, or use both values as a grid axis."
    )


def _union(before: Any, now: Any) -> list[Any]:
    """The values of both, each once; a single value counts as a list of one."""
    found: list[Any] = []
    for value in (before, now):
        for one in value if isinstance(value, list | tuple) else [value]:
            if one not in found:
                found.append(one)
    return found


def _of(recipe: Mapping[str, Any], key: str) -> Any:
    """A value to compare. The path of a bank's source is ignored; its content is checked."""
    value = recipe.get(key)
    if key == "bank" and isinstance(value, Mapping):
        return {**value, "source": value.get("source") is not None}
    return value


def _by_name(before: list[Any], now: list[Any], label: str, path: Path) -> list[Any]:
    """The recipes or fusions of both studies; two with the same name must be equal."""
    known = {one[label]: one for one in before if isinstance(one, Mapping) and label in one}
    for one in now:
        other = known.setdefault(one[label], one)
        changed = [k for k in (*one, *other) if k != "about" and _of(one, k) != _of(other, k)]
        if changed:
            key = changed[0]
            raise AccordError(
                f"{path} holds {one[label]!r} with another {key}: it was {other.get(key)!r}, now "
                f"it is {one.get(key)!r}. Give the changed one another name with `as: …`."
            )
    return list(known.values())
