"""The local engine: this machine's cores work through the clients of all trials."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from accord.engines.jobs import Job
from accord.engines.pool import Message, Pool
from accord.engines.run import Run
from accord.errors import AccordError


class Watcher(Protocol):
    """Someone who looks on: a progress display, or nobody."""

    def tell(self, line: str) -> None: ...
    def watching(self, runs: Sequence[Run]) -> AbstractContextManager[None]: ...
    def started(self, run: Run, job: Job) -> None: ...
    def news(self, run: Run, job: Job, share: float, *, restored: bool = False) -> None: ...
    def ended(self, run: Run, job: Job, failure: str | None) -> None: ...
    def finished(self, run: Run) -> None: ...


def execute(
    runs: Sequence[Run], pool: Pool, watcher: Watcher, on_result: Callable[[], object]
) -> None:
    """Takes every run to its end. A client that fails fails its trial; all others still train, so
    that a second try has less to do.

    `on_result` is called after each trial, so that results can be read while others run.

    A trial's clients need not wait for the trial before: no core is idle while there is work.
    """
    owners: dict[int, Run] = {}
    waiting = deque(run for run in runs if not run.over)
    while waiting:
        for run in list(waiting):
            run.advance()
            if run.over:
                waiting.remove(run)
                run.close()
                on_result()
                watcher.finished(run)
                continue
            while run.ready and pool.free():
                job = run.ready.popleft()
                owners[id(job)] = run
                run.pending += 1
                pool.start(job)
                watcher.started(run, job)
            if not pool.free():
                break
        if pool.busy():
            pool.hear(lambda message: _hear(owners[id(message.job)], message, watcher))


def _hear(run: Run, message: Message, watcher: Watcher) -> None:
    job, body = message.job, message.body
    if message.kind == "news":
        if "event" in body:
            event = body["event"]
            run.folder.append_event({"client": job.args["index"], **event})
            share = event["epoch"] / run.trial.setup.budget.epochs
            watcher.news(run, job, share, restored=body.get("restored", False))
        else:
            watcher.news(run, job, body["share"])
        return
    run.pending -= 1
    if message.kind == "done":
        run.take(job, body["result"])
        watcher.ended(run, job, None)
        return
    if body["error"] in ("user", "disk"):
        raise AccordError(_explained(body))
    failure = f"{_subject(job)}: {body['message']}"
    if "trace" in body:
        log = run.folder.path / "defect.txt"
        log.write_text(body["trace"], encoding="utf-8")
        failure += f" (a defect in Accord; its traceback is in {log})"
    run.failures.append(failure)
    watcher.ended(run, job, failure)


def _subject(job: Job) -> str:
    if job.kind != "train":
        return f"the {job.kind} step"
    return "the teacher" if job.args["index"] is None else f"client {job.args['client']}"


def _explained(body: dict[str, Any]) -> str:
    if body["error"] == "disk":
        return (
            f"cannot write {body['message']}. Mend that and run the same command again: it goes "
            "on where it stopped."
        )
    return str(body["message"])
