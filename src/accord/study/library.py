"""Reads recipes, from Accord's own files or the user's, and merges each with its base."""

from __future__ import annotations

from functools import cache
from importlib import resources
from pathlib import Path

from accord.core.errors import AccordError, nearest
from accord.core.yamls import read_yaml, yaml_of
from accord.study.syntax import Spec, in_full, lay_over


def read_recipe(name: str, folder: Path, heirs: tuple[str, ...] = ()) -> Spec:
    """The unchecked mapping of a recipe; `heirs` are the recipes that extend it."""
    if name in heirs:
        raise AccordError(f"recipe {name!r} extends itself: {' → '.join((*heirs, name))}.")
    if name.endswith((".yaml", ".yml")):
        raw = in_full(read_yaml(folder / name), (folder / name).parent)
    else:
        raw = in_full(_shipped_file(_shipped_name(name)), folder)
    base = raw.pop("extends", None)
    if base is None:
        return lay_over({}, raw, name)
    inherited = read_recipe(str(base), folder, (*heirs, name))
    own = {k: v for k, v in inherited.items() if k not in ("alias", "about")}
    return lay_over(own, raw, name)


@cache
def shipped() -> dict[str, str | None]:
    """Name → alias of every recipe that comes with Accord."""
    files = resources.files("accord.recipes").iterdir()
    names = sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))
    return {name: _shipped_file(name).get("alias") for name in names}


def _shipped_name(name: str) -> str:
    by_alias = {alias: real for real, alias in shipped().items() if alias}
    real = by_alias.get(name, name)
    if real not in shipped():
        known = [*shipped(), *by_alias]
        hint = nearest(name, known) or "."
        raise AccordError(
            f"unknown recipe {name!r}{hint} Known: {', '.join(known)}; or give the path of a "
            "recipe file that ends in .yaml."
        )
    return real


@cache
def _shipped_text(name: str) -> str:
    return resources.files("accord.recipes").joinpath(f"{name}.yaml").read_text("utf-8")


def _shipped_file(name: str) -> Spec:
    raw: Spec = yaml_of(_shipped_text(name))
    return {"name": name, **raw}
