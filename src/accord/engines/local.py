"""Worker processes on this machine's cores. Importing this needs no torch: they start first."""

from __future__ import annotations

import os
from typing import Any

from accord.core.errors import AccordError
from accord.engines.pool import Processes

WORKER = ("-m", "accord.federation.worker")


def workers_for(asked: int | None) -> int:
    """One worker per core that this process may use, unless told otherwise."""
    if asked is not None and asked < 1:
        raise AccordError(f"--workers: expected 1 or more; found {asked}.")
    available = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available else os.cpu_count() or 1
    return asked or cores


def start_workers(count: int) -> Processes[Any] | None:
    """Worker processes that begin to load what they need; None: one worker needs no process."""
    return Processes(count, WORKER) if count > 1 else None
