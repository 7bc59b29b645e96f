"""The base of every typed section of a study, a recipe or a message header."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError

from accord.core.errors import AccordError, nearest

M = TypeVar("M", bound="Config")


class Config(BaseModel):
    """An immutable model that refuses unknown keys, and NaN or infinity in a float."""

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )


def parse(model: type[M], values: Any, where: str) -> M:
    """`values` as a `model`. One AccordError lists the first mistakes, with keys under `where`."""
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise _explained(model, error.errors(), where) from None


def check_alone(model: type[Config], values: Any, where: str) -> None:
    """Checks each value by itself, but not whether the values fit together or are complete."""
    try:
        model.model_validate(values)
    except ValidationError as error:
        single = [item for item in error.errors() if item["loc"] and item["type"] != "missing"]
        if single:
            raise _explained(model, single, where) from None


def _explained(model: type[Config], mistakes: list[Any], where: str) -> AccordError:
    by_key: dict[tuple[str, ...], list[Any]] = {}
    for item in mistakes:
        by_key.setdefault(_path(item["loc"]), []).append(item)
    problems = [_sentence(model, path, items, where) for path, items in by_key.items()]
    return AccordError(" ".join(problems[:3]))


def _path(steps: tuple[int | str, ...]) -> tuple[str, ...]:
    """Where a mistake is, without pydantic's names for the branches of a union."""
    return tuple(str(step) for step in steps if not re.match(BRANCH, str(step)))


BRANCH = r"(function-|constrained-|literal\[|(float|int|str|bool)$)"


def _sentence(model: type[Config], path: tuple[str, ...], items: list[Any], where: str) -> str:
    """All mistakes of one key, as one text. A union has one item for each of its branches."""
    item = items[0]
    key = ".".join([where, *path] if where else path) or "the file"
    if item["type"] == "extra_forbidden":
        section = _section(model, path[:-1])
        known = keys(section) if section else []
        hint = nearest(path[-1], known)
        listed = f" Known here: {', '.join(known)}." if known else ""
        return f"unknown key {key!r}{hint or '.'}{listed}"
    if item["type"] == "missing":
        return f"{key!r} is missing."
    found = item["input"]
    plain = isinstance(found, str | int | float | bool | None | list)
    shown = f"; found {found!r}" if plain and len(repr(found)) < 80 else ""
    hint = " A grid is written [a, b]." if isinstance(found, str) and "," in found else ""
    words = " or ".join(dict.fromkeys(_plain_words(item) for item in items))
    return f"{key!r}: {words.replace(' or expected ', ' or ')}{shown}.{hint}"


def _plain_words(item: Any) -> str:
    """pydantic's message without the terms of Python."""
    context = item.get("ctx", {})
    if item["type"] == "string_pattern_mismatch":
        return "expected letters, digits, dots, dashes and underscores"
    if item["type"] in ("too_short", "tuple_too_short"):
        return f"expected at least {context.get('min_length')} entries"
    if item["type"] in ("tuple_type", "list_type"):
        return "expected a list such as [0, 1]"
    if item["type"] in ("float_parsing", "float_type"):
        return "expected a number"
    if item["type"] in ("int_parsing", "int_type"):
        return "expected a whole number"
    if item["type"] in ("model_type", "dict_type"):
        return "expected a mapping of keys"
    if item["type"] == "string_type":
        return "expected text (in quotes, if it looks like a number or a date)"
    message = str(item["msg"]).removeprefix("Value error, ")
    if message.startswith("Input should be "):
        return "expected " + message.removeprefix("Input should be ")
    return message


def keys(model: type[Config]) -> list[str]:
    """The keys that a user writes for `model`: aliases instead of Python names."""
    return [field.alias or name for name, field in model.model_fields.items()]


def _is_section(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Config)


def _section(model: type[Config], path: tuple[str, ...]) -> type[Config] | None:
    """The model of the section that `path` leads to; None if it is not a plain nested model."""
    for step in path:
        field = next((f for name, f in model.model_fields.items() if step in (name, f.alias)), None)
        inner = field.annotation if field else None
        models = [part for part in (inner, *get_args(inner)) if _is_section(part)]
        if not models:
            return None
        model = models[0]
    return model
