"""As many one-thread processes as there are cores, doing the same thing at the same time.

That is how Accord trains, so it is how its speed and the machine's peak are measured: cores share
caches, memory and power, and one busy core tells little about all of them.
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

Task = Callable[[], float]  # does some work and tells how much
MakeTasks = Callable[[], dict[str, Task]]  # called in each process; must be picklable


class Crew:
    """Processes that wait for the name of a task."""

    def __init__(self, pipes: list[Connection]) -> None:
        self._pipes = pipes

    def __len__(self) -> int:
        return len(self._pipes)

    def rate(self, task: str, seconds: float) -> float:
        """Work per second, summed over all processes, while each is at it for `seconds`.

        A process counts the seconds it has its core: what others take of it is not its own doing.
        """
        for pipe in self._pipes:
            pipe.send((task, seconds))
        return sum(float(pipe.recv()) for pipe in self._pipes)


@contextmanager
def crew(make_tasks: MakeTasks) -> Iterator[Crew]:
    """A process per core, each with the tasks warmed up."""
    context = multiprocessing.get_context("spawn")
    # Read by the maths libraries when a process starts; Accord's pool sets the same.
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
