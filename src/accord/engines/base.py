"""The seam between a federation and the place where its work is done.

A federation asks an engine to do a job and hears what becomes of it. The engine knows neither
methods nor recipes; a job is JSON. Other engines (mail, a network, a cluster) fit in here.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from accord.core.errors import AccordError, ClientError


class Sendable(Protocol):
    """Work that can be described in JSON."""

    def to_json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Sendable)


@dataclass(frozen=True, eq=False)  # two jobs are never the same job
class Job(Generic[T]):
    """A task, and its size in images passed through a net."""

    task: T
    size: float


@dataclass(frozen=True)
class Message(Generic[T]):
    """News of a job, or how it ended: `body` is the worker's own JSON."""

    job: Job[T]
    kind: Literal["news", "done", "failed"]
    body: dict[str, Any]


class Engine(Protocol[T]):
    """Does jobs while it has room for them, and tells what becomes of each."""

    def open(self, record: Path) -> None:
        """Names the record's folder; jobs are asked for afterwards."""

    def free(self) -> int:
        """How many more jobs it can begin now."""

    def busy(self) -> int:
        """How many jobs are under way."""

    def ask(self, job: Job[T]) -> None: ...

    def hear(self, handle: Callable[[Message[T]], None]) -> None:
        """Passes on what is told, until at least one job has ended."""

    def close(self) -> None:
        """Ends whatever it started."""


def failure(error: Exception) -> dict[str, Any]:
    """An error as JSON. A defect of ours brings its traceback along, a user's mistake does not."""
    if isinstance(error, ClientError):
        return {"error": "client", "message": str(error)}
    if isinstance(error, AccordError):
        return {"error": "user", "message": str(error)}
    if isinstance(error, OSError) and error.errno is not None:
        return {
            "error": "disk",
            "message": f"{error.filename or 'a file'}: {os.strerror(error.errno)}",
        }
    trace = "".join(traceback.format_exception(error))
    return {"error": "defect", "message": f"{type(error).__name__}: {error}", "trace": trace}
