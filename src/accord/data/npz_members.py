"""The arrays in an .npz file, checked by their headers before any of them is unpacked."""

from __future__ import annotations

import math
import zipfile
from pathlib import Path
from typing import IO

import numpy as np
from numpy.lib import format as npy

from accord.core.errors import AccordError
from accord.core.reading import megabytes
from accord.data.room import refuse_without_room

MOST_MEMBERS = 10_000
# Images shrink to a fifth at best. A file that unpacks to so much more holds only repetitions.
MOST_RATIO, FREE = 200, 64 * 2**20  # the ratio counts from this number of bytes on


def check_members(path: Path) -> None:
    """Refuses an archive whose arrays are damaged, too large, or packed suspiciously well.

    Errors of zipfile are left to the caller.
    """
    with zipfile.ZipFile(path) as archive:
        members = archive.infolist()
        names = {member.filename for member in members}
        if len(members) > MOST_MEMBERS or len(names) < len(members):
            raise ValueError(f"it holds {len(members):,} arrays, or one of them twice")
        for member in members:
            with archive.open(member) as file:
                _check_array(file, member)
        unpacked = sum(member.file_size for member in members)
    packed = path.stat().st_size
    if unpacked > max(FREE, MOST_RATIO * packed):
        raise AccordError(
            f"{path}: it holds {megabytes(packed)} and unpacks to {megabytes(unpacked)}; expected "
            f"at most {MOST_RATIO} times as much. It holds no photographs. Save it without "
            "compression if it is really meant."
        )
    refuse_without_room((unpacked,), 1, path)


def _check_array(file: IO[bytes], member: zipfile.ZipInfo) -> None:
    """Raises ValueError if a member is no array, or is not as long as its header says."""
    name = member.filename
    try:
        version = npy.read_magic(file)
        read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError(f"{name!r} is no array: {str(error)[:100]}") from None
    if dtype == np.dtype(object):
        return  # the reader of the array explains that it is not safe
    held = member.file_size - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != held:
        raise ValueError(
            f"{name!r} should be {shape} {dtype}, but {held:,} bytes follow its header"
        )
