"""The recipes that a command chooses (`recipes=[NAME]`), as the study itself has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.study.resolve import resolve


def chosen(asked: Any, own: Any, folder: Path) -> Any:
    """`asked`, in which names of recipes of the study stand for the study's own entries.

    If the study also changes a recipe that one of them stands on, this entry is added.
    """
    named = ((_label(entry), entry) for entry in own if isinstance(entry, Mapping))
    known = {label: entry for label, entry in named if isinstance(label, str)}
    names = [asked] if isinstance(asked, str) else asked
    if not known or not isinstance(names, list):
        return asked
    found = [known.get(name, name) if isinstance(name, str) else name for name in names]
    for entry in found:  # it grows while it is read: a base may stand on another one
        if not any(entry is one for one in known.values()):
            continue
        base = resolve(entry, folder).stands_on
        if base in known and base not in map(_label, found):
            found.append(known[base])
    return found


def _label(entry: Any) -> Any:
    """The name that an entry gives its recipe; None for a changed recipe without `as`."""
    if not isinstance(entry, Mapping):
        return entry
    return entry.get("as", entry.get("name"))
