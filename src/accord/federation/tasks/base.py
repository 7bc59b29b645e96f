"""A task is plain JSON that names its inputs; its results are files and a small JSON answer.

It gives the same result in this process, in a worker process, and when it is done again after a
crash. A task names a trial, a round and a client, but no path inside the record: the worker finds
their files, so that the record's folder may have another path for a worker.
"""

from __future__ import annotations

import ctypes
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import psutil

from accord.core.clock import Stopwatch
from accord.core.config import Config
from accord.core.errors import ClientError
from accord.core.mishaps import lack_of_memory
from accord.core.registry import Registry
from accord.core.threads import one_thread
from accord.data.allocation import Allocation, open_allocation
from accord.messages import Briefing
from accord.record.folders import TrialFolder
from accord.record.record import Record

STATUS = Path("/proc/self/status")  # only Linux has it
Answer = dict[str, Any]
Tell = Callable[[Answer], None]


class Task(Config, ABC):
    """One piece of work on a trial or a teacher."""

    kind: ClassVar[str]

    place: str  # path of the trial or teacher in the record, such as trials/NAME
    allocation: str  # key of the allocation of images
    device: str = "cpu"

    @property
    def about(self) -> str:
        """The name of the task in a progress bar."""
        return self.kind

    @property
    def subject(self) -> str:
        """The subject of the error message if the task fails."""
        return f"the {self.kind} step"

    @abstractmethod
    def perform(self, record: Record, tell: Tell) -> Answer: ...

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, **self.model_dump(mode="json")}

    def folder(self, record: Record) -> TrialFolder:
        return record.folder(self.place)

    def images(self, record: Record) -> Allocation:
        return _allocation(str(record.allocation(self.allocation)))

    def out_of_memory(self, record: Record, said: str) -> ClientError:  # noqa: ARG002
        """The error with advice for the user, if memory was not sufficient."""
        return ClientError(
            f"out of memory ({said}). Use a smaller map.landmarks, or blocks with a smaller count "
            "or grid."
        )


T = TypeVar("T", bound=Task)
tasks: Registry[type[Task]] = Registry("task", "accord.federation.tasks")


def register(kind: str) -> Callable[[type[T]], type[T]]:
    def add(task: type[T]) -> type[T]:
        task.kind = kind
        tasks.register(kind)(task)
        return task

    return add


def make_task(content: dict[str, Any]) -> Task:
    """The task whose `to_json` is `content`."""
    values = {key: value for key, value in content.items() if key != "kind"}
    return tasks.get(content["kind"]).model_validate(values)


def perform(task: Task, record: Record, tell: Tell) -> Answer:
    """Does a task in this process."""
    spent = Stopwatch(task.device)
    try:
        with one_thread():
            answer = task.perform(record, tell)
    except (RuntimeError, MemoryError) as error:
        said = lack_of_memory(error)
        if said is None:
            raise
        raise task.out_of_memory(record, said) from None
    finally:
        release_memory()
    return {**answer, "peak_memory": peak_memory(), "core_seconds": spent.seconds}


def release_memory() -> None:
    """Returns freed memory to the system, where the C library (glibc) can do so.

    Workers keep freed memory during a job, because this makes steps faster. Without a release, the
    memory that is left of one job would add to that of the next one, which may not fit into it.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:
            trim(0)


def peak_memory() -> int:
    """The peak memory of this process, in bytes."""
    memory = psutil.Process().memory_info()
    return int(getattr(memory, "peak_wset", 0) or _peak_of_unix())


def _peak_of_unix() -> int:
    import resource

    if STATUS.exists():
        # A Linux process inherits ru_maxrss from the process that started it; VmHWM is its own.
        (line,) = (line for line in STATUS.read_text().splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


@lru_cache(maxsize=2)
def _briefing(path: str, changed: int) -> Briefing:  # noqa: ARG001 - part of the cache's key
    return Briefing.load(Path(path))


def briefing_at(path: Path) -> Briefing:
    """The briefing in a file; it is cached, because several tasks in a row read it."""
    return _briefing(str(path), path.stat().st_mtime_ns if path.exists() else 0)


@lru_cache(maxsize=4)
def _allocation(path: str) -> Allocation:
    return open_allocation(Path(path))
