"""Text from strangers: names in files and messages must not control a terminal."""

from __future__ import annotations

import re


def printable(text: str) -> str:
    """`text` with a sign in the place of every character that is not printable, such as escapes."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def one_line(text: str, longest: int = 500) -> str:
    """`text` as one printable line of limited length."""
    return printable(" ".join(text.split()))[:longest]


def natural(name: str) -> list[tuple[int, str]]:
    """A key to sort names as people do: client 2 comes before client 10."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
