"""The parts of a recipe. Each part is registered, typed, and has its own parameters.

In YAML, a part is written as its name (`fusion: features`) or as a mapping whose key `use` gives
the name (`balance: {use: fixed, lambda: 5}`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from accord.core.config import Config, keys, parse
from accord.core.errors import AccordError
from accord.core.registry import Registry

P = TypeVar("P", bound=Config)
AUTOMATIC = "is set automatically; do not set it"  # the description of a key that no user sets


def make_part(registry: Registry[type[P]], spec: Any, where: str) -> P:
    """The part that `spec` (a name, or a mapping with `use`) describes."""
    if isinstance(spec, str):
        spec = {"use": spec}
    if not isinstance(spec, Mapping) or not isinstance(spec.get("use"), str):
        raise AccordError(
            f"{where!r}: expected a name or a mapping with 'use'; found {spec!r}. "
            f"Known: {', '.join(registry.names())}."
        )
    params = {key: value for key, value in spec.items() if key != "use"}
    return parse(registry.get(spec["use"]), params, where)


def part_spec(name: str, part: Config) -> dict[str, Any]:
    """The mapping that makes `part` again, with every parameter written out."""
    return {"use": name, **part.model_dump(mode="json", by_alias=True)}


def set_by_hand(part: Config) -> list[str]:
    """The keys of a part that are set automatically, but have another value than their default."""
    fields = type(part).model_fields.items()
    automatic = {key: field.default for key, field in fields if field.description == AUTOMATIC}
    return [key for key, default in automatic.items() if getattr(part, key) != default]


def describe(part: type[Config]) -> list[tuple[str, str]]:
    """(key, meaning) of each parameter of a part, for `accord recipes`."""
    fields = part.model_fields.values()
    return [(key, f.description or "") for key, f in zip(keys(part), fields, strict=True)]


def summary(part: type[Config]) -> str:
    """The first line of a part's docstring."""
    return (part.__doc__ or "").strip().splitlines()[0]
