"""One process with one thread per core; all do the same work at the same time.

Accord trains in this way, so its speed and the machine's peak are measured in this way: cores share
caches, memory and power, so the speed of one busy core differs from the speed of all cores.
"""

from __future__ import annotations

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection

import torch

from accord.engines.local import workers_for

Task = Callable[[], float]  # does some work and returns its amount
MakeTasks = Callable[[], dict[str, Task]]  # called in each process; must be picklable


class Crew:
    """Processes that wait for the name of the next task."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def __len__(self) -> int:
        return len(self._pipes)

    def rate(self, task: str, seconds: float) -> float:
        """The work per second, summed over all processes, which work for `seconds` each.

        A process counts its CPU time, so that the time of other programs is not included.
        """
        for pipe in self._pipes:
            pipe.send((task, seconds))
        return sum(float(pipe.recv()) for pipe in self._pipes)


@contextmanager
def crew(make_tasks: MakeTasks) -> Iterator[Crew]:
    """One process per core; each has done its warm-up."""
    context = multiprocessing.get_context("spawn")
    # The maths libraries read these when a process starts; Accord's pool sets the same values.
    os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    pipes = []
    for _ in range(workers_for(None)):
        ours, theirs = context.Pipe()
        context.Process(target=_work, args=(theirs, make_tasks), daemon=True).start()
        theirs.close()
        pipes.append(ours)
    for pipe in pipes:
        pipe.recv()
    try:
        yield Crew(pipes)
    finally:
        for pipe in pipes:
            pipe.send(None)


def _work(pipe: Connection, make_tasks: MakeTasks) -> None:
    torch.set_num_threads(1)
    tasks = make_tasks()
    for task in tasks.values():
        task()
    pipe.send("ready")
    for name, seconds in iter(pipe.recv, None):
        pipe.send(_rate(tasks[name], seconds))


def _rate(task: Task, seconds: float) -> float:
    end, began, done = time.perf_counter() + seconds, time.process_time(), 0.0
    while time.perf_counter() < end:
        done += task()
    return done / (time.process_time() - began)
