"""Atomic writing of files: each is written under a temporary name and then renamed."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from accord.core.errors import AccordError
from accord.core.partials import partial_file
from accord.core.reading import json_of, read_text
from accord.core.targets import found_at

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
    _refuse_no_file(path)
    try:
        with partial_file(path.parent) as (descriptor, temporary):
            with os.fdopen(os.dup(descriptor), "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            temporary.chmod(0o644)
            temporary.replace(path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from error
    _take_note(path)


def append_text(path: Path, text: str) -> None:
    """Adds `text` to the end of a file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _refuse_no_file(path)
    with path.open("a", encoding="utf-8") as file:
        file.write(text)


def _refuse_no_file(path: Path) -> None:
    """Refuses to write to a folder, a link, a pipe or a device."""
    found = found_at(path)
    if found not in ("nothing", "a file"):
        raise AccordError(
            f"{path} is {found}; expected a file that Accord can write. Remove or rename it."
        )


def _take_note(path: Path) -> None:
    paths = _written.get()
    if paths is not None and path not in paths:
        paths.append(path)


@contextmanager
def locked(folder: Path, said: str, name: str = ".lock") -> Iterator[None]:
    """Lets one process at a time work in `folder`; another one gets an AccordError that says so.

    The lock ends when its process ends.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    _refuse_no_file(path)
    if path.exists() and path.stat().st_size:  # to lock a file empties it
        raise AccordError(f"{path} is no lock of Accord, because it is not empty. Move it away.")
    lock = FileLock(path)
    try:
        lock.acquire(timeout=0)
    except Timeout:
        raise AccordError(said) from None
    except NotImplementedError:
        raise AccordError(
            f"{folder}: its file system cannot lock files. Choose a folder on another disk."
        ) from None
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
        with partial_file(target.parent) as (_, temporary):
            shutil.copyfile(source, temporary)
            temporary.replace(target)
