"""Ways to damage a file of text or of bytes."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

Damage = Callable[[Path], object]


def text(content: str) -> Damage:
    return lambda path: path.write_text(content)


def data(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content)


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])


def flipped(path: Path) -> None:
    """One byte in the middle has another value."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x55
    path.write_bytes(bytes(content))


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def gone(path: Path) -> None:
    path.unlink()


DAMAGES: dict[str, Damage] = {
    "empty": data(b""),
    "cut": cut,
    "random bytes": data(random.Random(0).randbytes(3000)),
    "not UTF-8": data(b'{"a": "\xff\xfe"}'),
    "UTF-16": data('{"a": 1}'.encode("utf-16")),
    "2,000-deep lists": text("[" * 2000 + "]" * 2000),
    "100,000-deep mappings": text('{"a":' * 100_000 + "1" + "}" * 100_000),
    "an integer of 5,000 digits": text('{"a": ' + "9" * 5000 + "}"),
    "NaN": text('{"a": NaN, "b": Infinity, "c": 1e999}'),
    "a list": text("[1, 2, 3]"),
    "a number": text("3"),
    "null": text("null"),
    "an empty mapping": text("{}"),
    "zero bytes": data(b"\0" * 100),
    "control characters": text('{"\\u001b[31mred": "\\u202e"}'),
    "a folder": folder,
    "a FIFO": fifo,
    "a link to itself": loop,
    "gone": gone,
}
