"""Executes all runs of a study: gives their jobs to the engine and handles its messages."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from accord.core.errors import AccordError
from accord.core.files import write_atomic
from accord.engines.base import Engine, Job, Message
from accord.engines.pool import InProcess
from accord.federation.tasks import Task, perform
from accord.federation.tasks.answer import AnswerBriefing
from accord.federation.work import Run
from accord.record.record import Record

TaskJob = Job[Task]


class Watcher(Protocol):
    """The interface of a progress display."""

    def tell(self, line: str) -> None: ...
    def watching(self, runs: Sequence[Run]) -> AbstractContextManager[None]: ...
    def started(self, run: Run, job: TaskJob) -> None: ...
    def news(self, run: Run, job: TaskJob, share: float, *, restored: bool = False) -> None: ...
    def ended(self, run: Run, job: TaskJob, failure: str | None) -> None: ...
    def finished(self, run: Run) -> None: ...


def execute(
    runs: Sequence[Run], engine: Engine[Task], watcher: Watcher, on_result: Callable[[Run], object]
) -> None:
    """Executes every run until its end.

    If a client fails, its trial fails; the other clients still train, so that a second run has less
    to do. `on_result` is called after each trial, so that its results can be read while other
    trials run. Trials overlap, so that no core is idle while there are jobs.
    """
    owners: dict[TaskJob, Run] = {}
    waiting = deque(run for run in runs if not run.over)
    while waiting:
        for run in list(waiting):
            run.advance()
            if run.over:
                waiting.remove(run)
                run.close()
                on_result(run)
                watcher.finished(run)
                continue
            while run.ready and engine.free():
                job = run.ready.popleft()
                owners[job] = run
                run.pending += 1
                engine.ask(job)
                watcher.started(run, job)
            if not engine.free():
                break
        if engine.busy():
            engine.hear(lambda message: _hear(owners[message.job], message, watcher))


def _hear(run: Run, message: Message[Task], watcher: Watcher) -> None:
    job, body = message.job, message.body
    if message.kind == "news":
        if "event" in body and isinstance(job.task, AnswerBriefing):
            named = {"client": job.task.name, "round": job.task.round}
            run.folder.append_event({**named, **body["event"]})
        if "share" in body:
            watcher.news(run, job, body["share"], restored=body.get("restored", False))
        return
    run.pending -= 1
    if message.kind == "done":
        run.take(job, body["result"])
        watcher.ended(run, job, None)
        return
    if body["error"] in ("user", "disk"):
        raise AccordError(_explained(body))
    reason = body["message"]
    if "trace" in body:
        log = run.folder.path / "defect.txt"
        write_atomic(log, body["trace"].encode("utf-8", "backslashreplace"))
        reason += f" (a defect in Accord; its traceback is in {log})"
    run.take_failure(job, reason)
    watcher.ended(run, job, f"{job.task.subject}: {reason}")


def _explained(body: dict[str, Any]) -> str:
    if body["error"] == "disk":
        return (
            f"cannot write {body['message']}. Solve this problem and run the same command again: "
            "it continues where it stopped."
        )
    return str(body["message"])


def in_this_process() -> Engine[Task]:
    """The engine with one worker, which is this process itself."""
    return InProcess(lambda task, record, tell: perform(task, Record(record), tell))
