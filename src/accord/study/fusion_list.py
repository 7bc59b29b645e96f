"""The fusions of a study, which are added to those of its recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accord.core.errors import AccordError
from accord.fusion.named import NamedFusion
from accord.study.recipe import Recipe


def read_fusions(entries: Any) -> tuple[NamedFusion, ...]:
    if entries is None:
        return ()
    if not isinstance(entries, list):
        entries = [entries]
    return tuple(NamedFusion.read(entry, "fusions") for entry in entries)


def refuse_idle_fusions(fusions: Sequence[NamedFusion], recipes: Sequence[Recipe]) -> None:
    """Refuses a fusion that is listed twice, or that can use the uploads of no recipe."""
    for place, fusion in enumerate(fusions):
        if fusion in fusions[:place]:
            raise AccordError(f"'fusions': {fusion.label!r} is listed twice. Remove one of them.")
        if not any(recipe.takes(fusion) for recipe in recipes):
            names = ", ".join(recipe.name for recipe in recipes)
            raise AccordError(
                f"'fusions': {fusion.label!r} fuses {fusion.rule.of}, but it can use the uploads "
                f"of no recipe of this study ({names}). Remove it, or add a recipe that it fits."
            )


def refuse_same_labels(fusions: Sequence[NamedFusion], recipe: str) -> None:
    """Refuses two different fusions with the same name; the same fusion may occur twice."""
    known: dict[str, NamedFusion] = {}
    for fusion in fusions:
        if known.setdefault(fusion.label, fusion) != fusion:
            raise AccordError(
                f"two different fusions of recipe {recipe!r} are named {fusion.label!r}; give one "
                "of them another name with `as: …`."
            )
