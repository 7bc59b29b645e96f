"""Whether a process holds a file lock. The lock is only asked about and never taken.

A reader that took the lock, even for a moment, could make a writer fail that starts just then.
"""

from __future__ import annotations

import os
import re
import struct
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.reading import open_plain

LOCKS = Path("/proc/locks")  # all file locks that this Linux machine knows
FLOCK = re.compile(r"^\d+: FLOCK .* (\d+) ([0-9a-f]+):([0-9a-f]+):(\d+) ", re.MULTILINE)


def is_locked(path: Path) -> bool:
    """Whether a process holds the lock `path`, as far as this machine can see.

    A process on another machine is seen only if the file system shares its locks, as NFS does. On
    Windows, no process is seen.
    """
    try:
        return _in_table(path) or _answered_by_system(path)
    except (AccordError, OSError):
        return False


def _in_table(path: Path) -> bool:
    """Whether Linux lists a lock of this file by a process of this machine."""
    if not LOCKS.exists():
        return False
    there = path.stat()
    device = (os.major(there.st_dev), os.minor(there.st_dev))
    same = [lock for lock in FLOCK.findall(LOCKS.read_text()) if int(lock[3]) == there.st_ino]
    # Some file systems, such as btrfs, have another device in this list than in `stat`.
    return any(
        (int(major, 16), int(minor, 16)) == device or _has_open(process, path)
        for process, major, minor, _ in same
    )


def _has_open(process: str, path: Path) -> bool:
    try:
        return any(
            link.readlink() == path.resolve() for link in Path(f"/proc/{process}/fd").iterdir()
        )
    except OSError:  # it has ended, or it belongs to another user
        return False


def _answered_by_system(path: Path) -> bool:
    """Whether the system says that a lock would be refused: on macOS, and on a shared NFS."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    start_length = 0, 0  # the whole file
    if os.uname().sysname == "Darwin":
        shape, place = "qqihh", 3
        asked = struct.pack(shape, *start_length, 0, fcntl.F_WRLCK, os.SEEK_SET)
    else:
        shape, place = "hhqqi", 0
        asked = struct.pack(shape, fcntl.F_WRLCK, os.SEEK_SET, *start_length, 0)
    with open_plain(path) as file:
        answer = fcntl.fcntl(file, fcntl.F_GETLK, asked)
    return bool(struct.unpack(shape, answer)[place] != fcntl.F_UNLCK)
