"""Text from strangers: names in files and messages must not control a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """`text` with a sign in the place of every character that is not printable, such as escapes."""
    return "".join(sign if sign.isprintable() else "�" for sign in text)


def one_line(text: str, longest: int = 500) -> str:
    """`text` as one printable line of limited length."""
    return printable(" ".join(text.split()))[:longest]
