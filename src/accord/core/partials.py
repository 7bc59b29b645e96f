"""Temporary names: what is being written, beside its target and before it has its own name.

The name contains a checksum of itself, so that no file of a user has such a name by accident. The
process that writes it holds a lock on it. A name that nobody locks was left by a process that was
killed, and it may be removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

NAME = re.compile(r"\.accord-([0-9a-f]{16})-([0-9a-f]{16})\.partial")


def new_name() -> str:
    token = uuid.uuid4().hex[:16]
    return f".accord-{token}-{_checksum(token)}.partial"


def is_partial(name: str) -> bool:
    found = NAME.fullmatch(name)
    return found is not None and found[2] == _checksum(found[1])


def _checksum(token: str) -> str:
    return hashlib.sha256(f"temporary file of accord {token}".encode()).hexdigest()[:16]


@contextlib.contextmanager
def partial_file(folder: Path) -> Iterator[tuple[int, Path]]:
    """A new file in `folder` and its descriptor. It is removed at the end if it still exists."""
    path = folder / new_name()
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _CLOSED_BY_EXEC, 0o600)
    try:
        _lock(descriptor)
        yield descriptor, path
    finally:
        os.close(descriptor)
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)


@contextlib.contextmanager
def partial_folder(folder: Path) -> Iterator[Path]:
    """A new folder in `folder`. It is removed at the end if it still exists."""
    path = folder / new_name()
    path.mkdir(mode=0o755)
    descriptor = _open_folder(path)
    try:
        if descriptor is not None:
            _lock(descriptor)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
        if descriptor is not None:
            os.close(descriptor)


def sweep(folder: Path) -> None:
    """Removes what killed processes have left in `folder`. Errors are ignored."""
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in [entry for entry in entries if is_partial(entry.name)]:
            if _is_abandoned(Path(entry.path)):
                _remove(Path(entry.path))


def sweep_tree(folder: Path) -> None:
    """Removes what killed processes have left in `folder` and in the folders below it."""
    for place, folders, _ in os.walk(folder):
        sweep(Path(place))
        folders[:] = [name for name in folders if not is_partial(name)]


_CLOSED_BY_EXEC = getattr(os, "O_CLOEXEC", 0)


def _open_folder(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDONLY | _CLOSED_BY_EXEC)
    except OSError:  # Windows cannot open a folder
        return None


def _lock(descriptor: int) -> bool:
    """Locks what is open until it is closed; False if another process holds the lock."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:  # some network file systems have no locks: nothing is ever removed there
        return False
    return True


def _is_abandoned(path: Path) -> bool:
    if path.is_symlink() or not (path.is_dir() or path.is_file()):
        return False
    descriptor = os.open(path, os.O_RDONLY | _CLOSED_BY_EXEC)
    try:
        return _lock(descriptor)
    finally:
        os.close(descriptor)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
