"""Reading of files whose content may be damaged or hostile.

Only plain files are read, because a pipe or a device might never end. The size of a file and the
depth of its content are checked before it is used. Every problem is an AccordError with a sentence.
"""

from __future__ import annotations

import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError

MOST_TEXT = 512 * 2**20  # bytes of a JSON file; the largest files of real records have some 10 MB
DEEPEST = 100  # levels of nested lists and mappings in JSON and YAML; real files have about 10
BRACKETS = b"[]{}"
REST = bytes(sign for sign in range(256) if sign not in BRACKETS)
STRINGS = re.compile(rb'"(?:[^"\\]|\\.)*"')
HALF_SIGN = re.compile(r"\\u[dD][89a-fA-F]")  # half of a sign that JSON writes as two escapes


@contextmanager
def open_plain(path: Path) -> Iterator[BufferedReader]:
    """The plain file at `path`, open for reading. Anything else is refused without waiting."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)
    try:
        refuse_special(path)
        descriptor = os.open(path, flags)
    except FileNotFoundError:
        raise AccordError(f"{path} does not exist.") from None
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise AccordError(f"{path} cannot be read: {why}. Make it readable.") from None
    with os.fdopen(descriptor, "rb") as file:
        refuse_special(path, file.fileno())
        yield file


def refuse_special(path: Path, descriptor: int | None = None) -> None:
    """Raises AccordError if there is something else than a plain file; OSError if nothing is."""
    mode = (path.stat() if descriptor is None else os.fstat(descriptor)).st_mode
    if not stat.S_ISREG(mode):
        raise AccordError(
            f"{path} is {kind_of_entry(mode)}; expected a plain file. Name the file itself."
        )


def kind_of_entry(mode: int) -> str:
    """What a mode of `stat` stands for, in words."""
    kinds = {
        stat.S_IFDIR: "a folder",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFCHR: "a device",
        stat.S_IFBLK: "a device",
    }
    return kinds.get(stat.S_IFMT(mode), "no plain file")


def read_plain(path: Path, most: int | None = None) -> bytes:
    """The bytes of a plain file, of at most `most` bytes; by default what the memory can hold."""
    with open_plain(path) as file:
        size = os.fstat(file.fileno()).st_size
        limit = memory() if most is None else most
        if size > limit:
            raise AccordError(
                f"{path} holds {megabytes(size)}; expected at most {megabytes(limit)}. It is "
                "damaged, or another kind of file."
            )
        try:
            return file.read()
        except (OSError, MemoryError) as error:
            why = getattr(error, "strerror", None) or "it does not fit into memory"
            raise AccordError(f"{path} cannot be read: {why}.") from None


def read_text(path: Path, most: int = MOST_TEXT) -> str:
    """The text of a plain file in UTF-8."""
    content = read_plain(path, most)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        utf16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
        found = "UTF-16" if utf16 else f"another byte at position {error.start:,}"
        raise AccordError(
            f"{path} is no text in UTF-8: found {found}. Save it again as UTF-8, or restore it."
        ) from None


def json_of(text: str | bytes) -> Any:
    """The value of a JSON text. Raises ValueError with the reason if it cannot be read.

    A key that occurs twice is refused, because one of its values would be lost. NaN and Infinity
    are read: the telemetry of a training that failed holds them.
    """
    encoded = text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text
    _refuse_deep(encoded)
    decoded = encoded.decode("utf-8")
    try:
        value = json.loads(decoded, object_pairs_hook=_each_key_once)
    except (RecursionError, MemoryError):
        raise ValueError("its content is too large or too deeply nested") from None
    if HALF_SIGN.search(decoded):
        json.dumps(value, ensure_ascii=False).encode()  # UnicodeEncodeError is a ValueError
    return value


def _each_key_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {twice[:80]!r} occurs twice")
    return found


def _refuse_deep(encoded: bytes) -> None:
    """Raises ValueError if lists and mappings are nested too deeply."""
    # The first look counts the brackets inside texts too; the second one is slower and exact.
    if _depth(encoded) > DEEPEST and _depth(STRINGS.sub(b"", encoded)) > DEEPEST:
        raise ValueError(f"lists or mappings are nested more than {DEEPEST} levels deep")


def _depth(encoded: bytes) -> int:
    """The number of nested brackets, counted until it exceeds the limit."""
    depth = deepest = 0
    for bracket in encoded.translate(None, REST):
        depth += 1 if bracket in b"[{" else -1
        deepest = max(deepest, depth)
        if deepest > DEEPEST:
            break
    return deepest


def memory() -> int:
    """The physical memory of this machine, in bytes."""
    import psutil  # imported here, so that commands that read small files start quickly

    return int(psutil.virtual_memory().total)


def megabytes(count: int) -> str:
    """A number of bytes, for messages."""
    return f"{count / 1e9:,.1f} GB" if count >= 10**9 else f"{max(count / 1e6, 0.1):,.1f} MB"
