"""Names of clients, which come from users' data: in file names, on a terminal, and in order."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from accord.core.text import printable

SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
LONGEST_FILE = 60  # characters of a name that is used in a file name without a change
LONGEST_SHOWN = 60  # characters of a name in a message
SLUG = 40  # characters of a changed name before its hash
# Windows reserves these names, also with an extension.
PORTS = (f"{port}{number}" for port in ("com", "lpt") for number in range(10))
RESERVED = {"con", "prn", "aux", "nul", *PORTS}


def file_name(name: str) -> str:
    """`name` as a part of a file name; different names give different file names.

    A name of letters, digits, dots, dashes and underscores stays as it is, unless it is long or
    means something to an operating system. Any other name becomes a readable part, `~` and a hash.
    No unchanged name contains `~`, or the `@` that is put before the epoch of a checkpoint.
    """
    plain = SAFE.fullmatch(name) and len(name) <= LONGEST_FILE and not name.endswith(".")
    if plain and name.split(".")[0].lower() not in RESERVED:
        return name
    slug = re.sub(r"[^A-Za-z0-9_-]+", "_", name)[:SLUG].strip("_")
    return f"{slug}~{_digest(name)[:16]}"


def shown(name: str) -> str:
    """`name` in a message: one line that cannot control a terminal, and that is not too long."""
    if not name:
        return "''"
    if len(name) > LONGEST_SHOWN:
        name = f"{name[: LONGEST_SHOWN - 10]}…{_digest(name)[:6]}"
    return printable(name)


def listed(names: Sequence[str], most: int = 10) -> str:
    """The first `most` of some names in a message."""
    more = f" and {len(names) - most:,} more" if len(names) > most else ""
    return ", ".join(map(shown, names[:most])) + more


def natural(name: str) -> tuple[list[tuple[int, str]], str]:
    """A key to sort names as people do: client 2 comes before client 10."""
    # Texts and numbers alternate. A number has no leading zeros, so a longer one is larger.
    parts = enumerate(re.split(r"([0-9]+)", name))
    numbers = [(place % 2, part.lstrip("0") if place % 2 else part) for place, part in parts]
    return [(len(part) if number else 0, part) for number, part in numbers], name


def _digest(name: str) -> str:
    return hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
