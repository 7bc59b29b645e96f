"""Atomic writing of files: each is written under a temporary name and then renamed."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from accord.core.errors import AccordError
from accord.core.reading import json_of, read_text

_written: ContextVar[list[Path] | None] = ContextVar("_written", default=None)


@contextmanager
def written_files() -> Iterator[list[Path]]:
    """The list of the files that this thread writes atomically until the end of the block."""
    paths: list[Path] = []
    before = _written.set(paths)
    try:
        yield paths
    finally:
        _written.reset(before)


def write_atomic(path: Path, content: bytes) -> None:
    """Writes `content` to `path`. A reader sees the old file or the new one, even after a crash."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
        _take_note(path)
    except OSError as error:
        Path(temporary).unlink(missing_ok=True)
        raise OSError(error.errno, error.strerror, str(path)) from error
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def _take_note(path: Path) -> None:
    paths = _written.get()
    if paths is not None and path not in paths:
        paths.append(path)


def refuse_unwritable(path: Path, option: str) -> None:
    """Raises AccordError if nothing can be written beside `path`, which the user gave as `option`.

    It is called before long work, so that its result is not lost.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(prefix=f".{path.name}.", dir=path.parent):
            pass
    except OSError as error:
        raise AccordError(
            f"{option} {path} cannot be written: {error.strerror or error}. Choose another path."
        ) from None


@contextmanager
def locked(folder: Path, said: str, name: str = ".lock") -> Iterator[None]:
    """Lets one process at a time work in `folder`; another one gets an AccordError that says so.

    The lock ends when its process ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / name)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AccordError(said) from None
    try:
        yield
    finally:
        lock.release()


def write_json(path: Path, value: Any) -> None:
    write_atomic(path, (json.dumps(value, indent=1, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> Any:
    """The JSON at `path`. A damaged file raises an AccordError that names the file."""
    text = read_text(path)
    try:
        return json_of(text)
    except ValueError as error:
        raise AccordError(
            f"{path} is damaged: expected JSON, found {error}. Restore it, or delete its folder "
            "and run the study again."
        ) from None


def link_or_copy(source: Path, target: Path) -> None:
    """Links or copies the file at `source` to `target`, unless `target` already exists."""
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Some file systems have no hard links, so the file is copied atomically.
        temporary = target.with_suffix(".partial")
        shutil.copyfile(source, temporary)
        temporary.replace(target)
