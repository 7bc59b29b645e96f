"""How the C library (glibc) of this process places large blocks of memory."""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

SETTING = "MALLOC_MMAP_THRESHOLD_"  # glibc reads it when a process starts
M_MMAP_THRESHOLD = -3  # its name in malloc.h
LARGE = 2**23  # bytes


@contextmanager
def large_blocks_apart() -> Iterator[None]:
    """Takes every large block from the system, and returns it to the system when it is freed.

    A worker keeps freed memory on its heap (`GREEDY` in engines/pool.py). This makes training
    steps faster, because every step needs blocks of the same sizes. To draw a map, to add
    sums or to solve a ridge regression needs few large blocks, each of another size. A freed block
    is then often too small for the next one, or a small block already occupies a part of it. The
    heap grows, by another amount in each run.

    A process that was started without the setting is not changed.
    """
    kept = os.environ.get(SETTING)
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None) if sys.platform == "linux" else None
    if kept is None or mallopt is None:
        yield
        return
    mallopt(M_MMAP_THRESHOLD, min(LARGE, int(kept)))
    try:
        yield
    finally:
        mallopt(M_MMAP_THRESHOLD, int(kept))
