"""The engine that gives its jobs to the workers of a Dask cluster."""

from __future__ import annotations

import queue
import time
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from accord.core.files import write_atomic
from accord.engines.base import Job, Message, Sendable
from accord.engines.crew import Crew, Member
from accord.engines.dask import Call, Function, Link
from accord.engines.fitness import judge
from accord.engines.shared import wait_for_files

LOOK_EVERY = 1.0  # seconds between two looks at the workers of the cluster
LOSSES = 3  # workers that may be lost with the same job
TOKEN = ".cluster"  # a file of the record that a worker must be able to read

T = TypeVar("T", bound=Sendable)
Content = dict[str, Any]


@dataclass(frozen=True)
class Remote:
    """The functions that workers execute; a worker imports them by their names."""

    work: Function  # does a job
    examine: Function  # tells what the worker has and sees
    question: Callable[[Path], Content]  # what a worker must see to work on a record


@dataclass(frozen=True, eq=False)
class _Given(Generic[T]):
    """A job and the worker that does it."""

    job: Job[T]
    member: Member
    call: Call


class Cluster(Generic[T]):
    """Gives every worker process of the cluster at `address` one job at a time.

    `tell` gets a line when a worker is refused or lost.
    """

    def __init__(self, address: str, remote: Remote, tell: Callable[[str], None]) -> None:
        self._remote, self._tell = remote, tell
        self._record = Path()
        self._link = Link(address)
        self._crew = Crew(self._link, remote.examine, judge, tell)
        self._waiting: deque[Job[T]] = deque()  # for a worker
        self._given: dict[int, _Given[T]] = {}  # by the number of the call
        self._lost: dict[Job[T], list[str]] = {}  # the workers that were lost with a job
        self._looked = 0.0

    def open(self, record: Path) -> None:
        self._record = record.absolute()
        token = uuid.uuid4().hex
        write_atomic(self._record / TOKEN, token.encode())
        seen = {"file": TOKEN, "content": token, **self._remote.question(self._record)}
        self._crew.question = {"record": str(self._record), **seen}

    def free(self) -> int:
        """At least one while there is no job: it waits here for a worker, and hear() tells so."""
        idle = len(self._crew.idle()) - len(self._waiting)
        return max(idle, 0 if self.busy() else 1)

    def busy(self) -> int:
        return len(self._waiting) + len(self._given)

    def ask(self, job: Job[T]) -> None:
        self._waiting.append(job)
        self._give()

    def _give(self) -> None:
        """Gives waiting jobs to idle workers."""
        for member in self._crew.idle()[: len(self._waiting)]:
            job = self._waiting.popleft()
            content = {"record": str(self._record), "task": job.task.to_json()}
            call = self._link.call(self._remote.work, content, member.seen.address)
            self._given[call.number] = _Given(job, member, call)
            member.busy = True

    def hear(self, handle: Callable[[Message[T]], None]) -> None:
        """Returns also when a worker has joined, so that it gets a job at once."""
        free, ended = self.free(), False
        while not ((ended or self.free() > free) and self._link.inbox.empty()):
            for message in self._look():
                ended = True
                handle(message)
            self._give()
            try:
                number, news = self._link.inbox.get(timeout=LOOK_EVERY)
            except queue.Empty:
                continue
            given = self._given.get(number)
            if given is None:
                self._crew.heard(number)  # or it is about a job that was given to another worker
            elif news is not None:
                handle(Message(given.job, "news", news))
            else:
                for message in self._end(given):
                    ended = True
                    handle(message)

    def _look(self) -> list[Message[T]]:
        """Sees which workers came or went. The messages are about jobs that were lost too often."""
        if time.monotonic() - self._looked < LOOK_EVERY:
            return []
        self._looked = time.monotonic()
        self._crew.look()
        self._crew.wait_or_stop()
        gone = [given for given in self._given.values() if not self._crew.there(given.member)]
        return [message for given in gone for message in self._lose(given)]

    def _end(self, given: _Given[T]) -> list[Message[T]]:
        outcome = self._link.outcome(given.call)
        if outcome.kind == "lost":
            return self._lose(given)
        self._forget(given)
        self._lost.pop(given.job, None)
        if outcome.kind == "error":
            reason = f"worker {given.member.name} could not run it: {outcome.body['message']}"
            return [Message(given.job, "failed", {"error": "client", "message": reason})]
        body = outcome.body
        wait_for_files(self._record, body.get("files", ()))
        return [Message(given.job, body["kind"], body)]

    def _lose(self, given: _Given[T]) -> list[Message[T]]:
        """Gives the job of a lost worker to another one; the message says if that is in vain."""
        self._forget(given)
        self._crew.leave(given.member)
        self._link.drop([given.call])
        self._link.listen()  # in case that only the connection to the scheduler was lost
        names = [*self._lost.pop(given.job, ()), given.member.name]
        if len(names) < LOSSES:
            self._lost[given.job] = names
            self._waiting.appendleft(given.job)
            self._tell(f"worker {given.member.name} was lost; its job is given to another worker")
            return []
        reason = (
            f"{LOSSES} workers were lost while they did it: {', '.join(names)}. Dask ends a worker "
            "whose memory is full, and SLURM one whose time is over: give workers more memory or "
            "time, or use a smaller budget.batch or net.backbone."
        )
        return [Message(given.job, "failed", {"error": "client", "message": reason})]

    def _forget(self, given: _Given[T]) -> None:
        del self._given[given.call.number]
        given.member.busy = False

    def close(self) -> None:
        """Cancels the jobs of this run. The cluster goes on running."""
        self._link.close()
        (self._record / TOKEN).unlink(missing_ok=True)
