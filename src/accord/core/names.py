"""Names of clients, which come from users' data: in file names, on a terminal, and in order."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Iterable, Sequence
from shlex import quote

from accord.core.text import printable

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LONGEST_FILE = 60  # characters of a file name in which the whole name of a client is kept
LONGEST_SHOWN = 60  # characters of a name in a message
SLUG = 40  # characters of a name before its hash
# Windows reserves these names, also with an extension.
PORTS = (f"{port}{number}" for port in ("com", "lpt") for number in range(10))
RESERVED = {"con", "prn", "aux", "nul", *PORTS}


def file_name(name: str) -> str:
    """`name` as a part of a file name; different names give different file names.

    They also differ on a disk that takes capital and small letters for the same.

    A name of small letters, digits, dots, dashes and underscores stays as it is, unless it is long
    or means something to an operating system. With capital letters, `~` and a number that tells
    which letters these are follow: North becomes North~1. Any other name becomes a readable part,
    `~` and a hash. No unchanged name contains `~`, or the `@` before the epoch of a checkpoint.
    """
    capitals = sum(1 << place for place, sign in enumerate(name) if sign.isupper())
    kept = f"{name}~{capitals:x}" if capitals else name
    plain = SAFE.fullmatch(name) and len(kept) <= LONGEST_FILE and not name.endswith(".")
    if plain and name.split(".")[0].lower() not in RESERVED:
        return kept
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:SLUG].strip("_")
    return f"{slug}~{_digest(name)[:16]}"


def label_name(name: str) -> str:
    """`name` as a part of a label: as in a file name, but capital letters need no number."""
    found = file_name(name)
    return name if found.startswith(f"{name}~") and len(found) < len(name) + 17 else found


def shown(name: str) -> str:
    """`name` in a message: one line that cannot control a terminal, and that is not too long.

    Spaces at its ends become visible by quotes.
    """
    text = printable(name)
    quote = "'" if text != text.strip() or not text else ""
    if len(text) > LONGEST_SHOWN - 2 * len(quote):
        text = f"{text[: LONGEST_SHOWN - 10]}…{_digest(name)[:6]}"
    return f"{quote}{text}{quote}"


def typed(name: str) -> str:
    """`name` as a user writes it in a command."""
    return quote(name if name.isprintable() else shown(name))


def listed(names: Sequence[str], most: int = 10) -> str:
    """The first `most` of some names in a message."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def chosen(names: Iterable[str], text: str | None) -> set[str]:
    """The names that begin with `text`; if none does, those that contain it. None chooses all."""
    every = set(names)
    if text is None:
        return every
    first = {name for name in every if name.startswith(text)}
    return first or {name for name in every if text in name}


def look_alike(names: Sequence[str]) -> list[str]:
    """The names that differ from another one only in spaces, capitals or kinds of one letter."""
    found: dict[str, list[str]] = {}
    for name in names:
        plain = unicodedata.normalize("NFKC", name).casefold()
        found.setdefault("".join(plain.split()), []).append(name)
    return [name for group in found.values() if len(group) > 1 for name in group]


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key to sort names as people do: client 2 comes before client 10."""
    # Texts and numbers alternate. A number has no leading zeros, so a longer one is larger.
    parts = enumerate(re.split(r"([0-9]+)", name))
    numbers = [(place % 2, part.lstrip("0") if place % 2 else part) for place, part in parts]
    return [(len(part) if number else 0, part) for number, part in numbers], name


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
