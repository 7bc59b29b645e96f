"""The base of every typed section of a study, a recipe or a message header."""

from __future__ import annotations

import re
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, GetCoreSchemaHandler, ValidationError
from pydantic_core import CoreSchema

from accord.core.errors import AccordError, nearest

M = TypeVar("M", bound="Config")


def _make_strict(schema: Any) -> None:
    """Makes every number and truth value in a schema strict; lists may still stand for tuples."""
    if isinstance(schema, dict):
        if schema.get("type") in ("int", "float", "bool"):
            schema["strict"] = True
        for key, inner in schema.items():
            if key not in ("metadata", "serialization", "default", "cls", "config"):
                _make_strict(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            _make_strict(inner)


class Config(BaseModel):
    """An immutable model that refuses unknown keys, and NaN or infinity in a float.

    A number is never made from a text or from true and false, nor a whole number from 2.0, nor true
    from 1 or "yes": such a value is rarely what was meant.
    """

    model_config = ConfigDict(
        extra="forbid", frozen=True, populate_by_name=True, allow_inf_nan=False
    )

    @classmethod
    def __get_pydantic_core_schema__(
        cls, source: Any, handler: GetCoreSchemaHandler, /
    ) -> CoreSchema:
        schema: CoreSchema = handler(source)
        _make_strict(schema)
        return schema


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
        if item["type"] in TOO_SHORT and len(item["input"]) >= item["ctx"]["min_length"]:
            continue  # only because other entries are wrong, which is told
        by_key.setdefault(_path(item["loc"]), []).append(item)
    problems = [_sentence(model, path, items, where) for path, items in by_key.items()]
    return AccordError(" ".join(problems[:3]))


def _path(steps: tuple[int | str, ...]) -> tuple[str, ...]:
    """Where a mistake is, without pydantic's names for the branches of a union."""
    return tuple(str(step) for step in steps if not re.match(BRANCH, str(step)))


TOO_SHORT = ("too_short", "tuple_too_short")
BRANCH = r"(function-|constrained-|literal\[|dict\[|\[key\]$|(float|int|str|bool)$)"


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
    hint = _hint(found, items)
    words = " or ".join(dict.fromkeys(_plain_words(item) for item in items))
    return f"{key!r}: {words.replace(' or expected ', ' or ')}{shown}.{hint}"


def _hint(found: Any, items: list[Any]) -> str:
    """What to do about a value of the wrong kind."""
    if isinstance(found, str) and "," in found:
        return " A grid is written [a, b]."
    kinds = {item["type"] for item in items}
    if isinstance(found, str | float) and kinds & {"int_type", "float_type", "int_parsing"}:
        return " Write a plain number such as 1000, without quotes."
    if isinstance(found, bool) and kinds & {"int_type", "float_type"}:
        return " true and false are no numbers."
    return ""


def _plain_words(item: Any) -> str:
    """pydantic's message without the terms of Python."""
    context = item.get("ctx", {})
    if item["type"] == "string_pattern_mismatch":
        return "expected letters, digits, dots, dashes and underscores"
    if item["type"] in TOO_SHORT:
        return f"expected at least {context.get('min_length')} entries"
    if item["type"] in ("tuple_type", "list_type"):
        return "expected a list such as [0, 1]"
    if item["type"] in ("float_parsing", "float_type"):
        return "expected a number"
    if item["type"] in ("int_parsing", "int_type"):
        return "expected a whole number"
    if item["type"] == "string_too_short":
        return "expected a text that is not empty"
    if item["type"] in ("bool_type", "bool_parsing"):
        return "expected true or false"
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
