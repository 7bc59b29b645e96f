"""Puts a finished folder in the place of an older one, in one step.

Linux can exchange two names. Elsewhere, and on file systems that cannot do that, the old folder
first gets a name that is computed from its own name; a process that is killed before the new
folder has its place leaves the old one there, and `recover` gives it back its name.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from accord.core.partials import partial_folder, sweep
from accord.core.targets import settled

AT_FDCWD, RENAME_EXCHANGE = -100, 2  # from Linux's fcntl.h and fs.h
CANNOT = (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM)


@contextmanager
def new_version(target: Path) -> Iterator[Path]:
    """A new folder, which takes the place of `target` at the end of the block."""
    target = settled(target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        sweep(target.parent)
        with partial_folder(target.parent) as new:
            yield new
            replace_folder(new, target)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(target)) from error


def replace_folder(new: Path, target: Path) -> None:
    """Gives `new` the name `target`. An older folder there is removed afterwards."""
    if _renamed(new, target):
        return
    if exchange(new, target):
        shutil.rmtree(new, ignore_errors=True)  # this is now the old folder
    else:
        old = aside(target)
        shutil.rmtree(old, ignore_errors=True)
        target.rename(old)
        new.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def _renamed(new: Path, target: Path) -> bool:
    """Gives `new` its name, unless `target` is a folder that is not empty."""
    try:
        new.rename(target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        return False
    return True


def recover(target: Path) -> None:
    """Ends what a killed process has left of `replace_folder`: `target` is there again."""
    if not target.name:
        return
    old = aside(target)
    if not old.is_dir() or old.is_symlink():
        return
    if target.exists():
        shutil.rmtree(old, ignore_errors=True)
    else:
        old.rename(target)


def aside(target: Path) -> Path:
    """The name of an old folder while a new one takes its place."""
    name = hashlib.sha256(f"old folder of accord {target.name}".encode()).hexdigest()[:32]
    return target.with_name(f".accord-{name}.old")


def exchange(one: Path, other: Path) -> bool:
    """Exchanges the names of two folders in one step; False if the system cannot do that."""
    function = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if sys.platform != "linux" or function is None:
        return False
    names = (os.fsencode(one), os.fsencode(other))
    if function(AT_FDCWD, names[0], AT_FDCWD, names[1], RENAME_EXCHANGE) == 0:
        return True
    number = ctypes.get_errno()
    if number in CANNOT:
        return False
    raise OSError(number, os.strerror(number), str(other))
