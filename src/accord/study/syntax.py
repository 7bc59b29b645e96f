"""The syntax of recipes: expands short forms, and merges changes into a base recipe."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.study.paths import absolute_recipe

Spec = dict[str, Any]


def lay_over(base: Spec, changes: Spec, where: str) -> Spec:
    """`base` with `changes`; a top-level `balance` is that of the only alignment term."""
    merged = merge(base, {key: value for key, value in changes.items() if key != "balance"})
    if _only_parameters(changes.get("fusion")) and len(base.get("fusion") or ()) == 1:
        merged["fusion"] = [merge(base["fusion"][0], changes["fusion"][0])]
    align, balance = merged.get("align") or {}, changes.get("balance")
    if "balance" not in changes or (balance is None and not align):
        return merged
    if not isinstance(align, Mapping) or len(align) != 1:
        names = ", ".join(align) if isinstance(align, Mapping) else repr(align)
        raise AccordError(
            f"{where}.balance is for a recipe with one alignment term; found {names or 'none'}. "
            "Write it inside a term: align: {anchors: {balance: {use: fixed, lambda: 5}}}."
        )
    ((name, term),) = align.items()
    own = (changes.get("align") or {}).get(name)
    if balance is not None and isinstance(own, Mapping) and "balance" in own:
        raise AccordError(f"{where}: the balance is given twice, as `balance` and inside `align`.")
    if not isinstance(term, Mapping | None):
        raise AccordError(f"{where}.align.{name}: expected a mapping of keys; found {term!r}.")
    return {**merged, "align": {name: merge(dict(term or {}), {"balance": balance})}}


def _only_parameters(fusion: Any) -> bool:
    """Whether an expanded fusion names no rule, and so only changes the recipe's own fusion."""
    alone = isinstance(fusion, list) and len(fusion) == 1 and isinstance(fusion[0], Mapping)
    return alone and "use" not in fusion[0]


def merge(base: Spec, changes: Spec) -> Spec:
    """`base` with `changes`, merged mapping by mapping.

    None removes a key. A part whose `use` changes is replaced completely, because the parameters
    of the old part do not fit the new one.
    """
    merged = dict(base)
    for key, value in changes.items():
        old = merged.get(key)
        if value is None and key in merged:
            del merged[key]
        elif isinstance(value, Mapping) and isinstance(old, Mapping):
            swapped = "use" in value and value["use"] != old.get("use")
            merged[key] = dict(value) if swapped else merge(dict(old), dict(value))
        else:
            merged[key] = value
    return merged


def in_full(raw: Spec, folder: Path) -> Spec:
    """Expands short forms: `fusion: features` → `fusion: [{use: features}]`, terms → mappings."""
    normal = dict(raw)
    if isinstance(normal.get("bank"), str):
        raise AccordError(
            f"'bank': expected a mapping such as {{size: 1024}}; found {normal['bank']!r}. To "
            "choose the rows that repel, write objective: {contrast: {bank: others}}."
        )
    normal = absolute_recipe(normal, folder)
    for key in ("anchors", "balance", "method"):
        if isinstance(normal.get(key), str):
            normal[key] = {"use": normal[key]}
    if normal.get("fusion") is not None:
        listed = normal["fusion"] if isinstance(normal["fusion"], list) else [normal["fusion"]]
        normal["fusion"] = [{"use": spec} if isinstance(spec, str) else spec for spec in listed]
    for key in ("objective", "align"):
        if isinstance(normal.get(key), list):
            normal[key] = _listed(normal[key], key)
    if isinstance(normal.get("align"), Mapping):
        normal["align"] = {name: _with_full_balance(t) for name, t in normal["align"].items()}
    return normal


def _listed(names: list[Any], key: str) -> Spec:
    """`[a, b]` → `{a: {}, b: {}}`."""
    for name in names:
        if not isinstance(name, str):
            raise AccordError(
                f"{key!r}: a list may hold names of terms only; found {name!r}. Write parameters "
                "as a mapping, {name: {parameter: value}}."
            )
    return {name: {} for name in names}


def _with_full_balance(term: Any) -> Any:
    if isinstance(term, Mapping) and isinstance(term.get("balance"), str):
        return {**term, "balance": {"use": term["balance"]}}
    return term
