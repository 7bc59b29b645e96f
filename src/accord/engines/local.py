"""Worker processes on this machine. This module does not import torch, so they start at once."""

from __future__ import annotations

import os
from typing import Any

from accord.core.errors import AccordError
from accord.engines.pool import Processes

WORKER = ("-m", "accord.federation.worker")


def workers_for(asked: int | None) -> int:
    """The number of workers: as `asked`, or one per core that this process may use."""
    available = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available else os.cpu_count() or 1
    most = max(16, 8 * cores)  # every worker is a process with a gigabyte or so
    if asked is not None and not 1 <= asked <= most:
        raise AccordError(
            f"--workers: expected 1 to {most} on a machine with {cores} cores; found {asked}. "
            "More workers than cores save no time."
        )
    return asked or cores


def refuse_two_kinds_of_workers(cluster: str | None, workers: int | None) -> None:
    """Refuses a number of local workers if the workers of a cluster do the work."""
    if cluster is not None and workers is not None:
        raise AccordError(
            f"expected --cluster or --workers; found both, {cluster} and {workers}. The workers "
            "are those of the cluster: remove --workers, and start as many workers of the cluster "
            "as you need."
        )


def start_workers(count: int) -> Processes[Any] | None:
    """Starts `count` worker processes; None for one worker, which is this process itself."""
    return Processes(count, WORKER) if count > 1 else None


def one_worker() -> Processes[Any]:
    """A single worker process, like one of several."""
    return Processes(1, WORKER)
