"""The interface between a federation and the engine that does its work.

A federation gives jobs to an engine and gets messages about them. The engine knows neither methods
nor recipes; a job is JSON. Other engines (files, a network, a cluster) can use this interface too.
"""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from accord.core.errors import AccordError, ClientError
from accord.core.mishaps import sentence_of


class Sendable(Protocol):
    """Work that can be described in JSON."""

    def to_json(self) -> dict[str, Any]: ...


T = TypeVar("T", bound=Sendable)


@dataclass(frozen=True, eq=False)  # two jobs with the same content are still different jobs
class Job(Generic[T]):
    """A task, and its size, measured in images passed through a net."""

    task: T
    size: float


@dataclass(frozen=True)
class Message(Generic[T]):
    """A message about a job: its progress, its result or its failure. `body` is JSON."""

    job: Job[T]
    kind: Literal["news", "done", "failed"]
    body: dict[str, Any]


class Engine(Protocol[T]):
    """Does jobs, as many at a time as it can, and sends messages about them."""

    def open(self, record: Path) -> None:
        """Sets the folder of the record. It is called before the first job."""

    def free(self) -> int:
        """The number of jobs that the engine can start now."""

    def busy(self) -> int:
        """The number of jobs that are running."""

    def ask(self, job: Job[T]) -> None: ...

    def hear(self, handle: Callable[[Message[T]], None]) -> None:
        """Calls `handle` with each message, until a job has ended or more jobs can be started."""

    def close(self) -> None:
        """Ends all processes and cancels all jobs that it has started."""


def failure(error: Exception) -> dict[str, Any]:
    """An error as JSON. It contains a traceback if the error is a defect of Accord."""
    if isinstance(error, ClientError):
        return {"error": "client", "message": str(error)}
    if isinstance(error, AccordError):
        return {"error": "user", "message": str(error)}
    if isinstance(error, OSError) and error.errno is not None:
        return {
            "error": "disk",
            "message": f"{error.filename or 'a file'}: {os.strerror(error.errno)}",
        }
    sentence = sentence_of(error)
    if sentence is not None:
        return {"error": "user", "message": sentence}
    trace = "".join(traceback.format_exception(error))
    return {"error": "defect", "message": f"{type(error).__name__}: {error}", "trace": trace}
