"""Text from strangers: names in files and messages must not control a terminal or a spreadsheet."""

from __future__ import annotations

import json
from typing import Any

FORMULA = ("=", "+", "-", "@")  # a spreadsheet takes a cell that begins with one for a formula


def printable(text: str) -> str:
    """`text` with a sign in the place of every character that is not printable, such as escapes."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def clean(text: str) -> str:
    """Lines of text, each of which is printable."""
    return "\n".join(map(printable, text.split("\n")))


def json_text(value: Any) -> str:
    """`value` as readable JSON, in which every character that is not printable is an escape."""
    text = json.dumps(value, indent=1, ensure_ascii=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(s if s.isprintable() or s == "\n" else json.dumps(s)[1:-1] for s in text)


def cell(value: Any) -> Any:
    """A value in a CSV file: a printable text, with `'` before one that looks like a formula."""
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.startswith(FORMULA) else text


def one_line(text: str, longest: int = 500) -> str:
    """`text` as one printable line of limited length."""
    return printable(" ".join(text.split()))[:longest]
