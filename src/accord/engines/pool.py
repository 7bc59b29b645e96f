"""The local engine: worker processes or, with one worker, this process itself."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from accord.core.errors import AccordError
from accord.core.files import append_text
from accord.core.tied import tied_environment
from accord.engines.base import Job, Message, Sendable, failure

# By default glibc returns memory to the system after every step and requests it again. With these
# values it keeps the memory, which takes more memory but makes steps faster, most for small nets.
GREEDY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
MOST_STARTS = 5
ONE_THREAD = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}

T = TypeVar("T", bound=Sendable)
Told = queue.Queue["tuple[_Worker[Any], dict[str, Any] | None]"]
News = Callable[[dict[str, Any]], None]


class InProcess(Generic[T]):
    """One worker in this process, for debugging and for systems that can start no processes."""

    def __init__(self, perform: Callable[[T, Path, News], dict[str, Any]]) -> None:
        self._perform = perform
        self._record = Path()
        self._job: Job[T] | None = None

    def open(self, record: Path) -> None:
        self._record = record

    def free(self) -> int:
        return 0 if self._job else 1

    def busy(self) -> int:
        return 1 if self._job else 0

    def ask(self, job: Job[T]) -> None:
        self._job = job

    def hear(
        self,
        handle: Callable[[Message[T]], None],
        seconds: float | None = None,  # noqa: ARG002
    ) -> None:
        """Does the job in this process, so that a debugger shows all calls down to the loss."""
        job = self._job
        if job is None:
            return
        try:
            result = self._perform(
                job.task, self._record, lambda news: handle(Message(job, "news", news))
            )
            ended = Message(job, "done", {"result": result})
        except Exception as error:  # as in a worker process, every failure becomes a message
            ended = Message(job, "failed", failure(error))
        self._job = None
        handle(ended)

    def close(self) -> None:
        pass


class Processes(Generic[T]):
    """Several worker processes with one thread each, started by `command`.

    They start at once and load their modules while this process still reads the study. A worker
    reads lines of JSON from its standard input: the first line contains the paths of the record and
    of the worker's log, each later line is a task. It answers in lines of JSON.
    """

    def __init__(self, workers: int, command: Sequence[str]) -> None:
        self._told: Told = queue.Queue()
        self._command = command
        self._record: Path | None = None
        self._starts = 0  # workers that died before they began a job, since the last one began
        self._workers: list[_Worker[T]] = [self._start(number) for number in range(workers)]

    def _start(self, number: int) -> _Worker[T]:
        return _Worker(number, self._command, self._told)

    def open(self, record: Path) -> None:
        self._record = record
        for worker in self._workers:
            worker.open(record)

    def free(self) -> int:
        return sum(worker.job is None for worker in self._workers)

    def busy(self) -> int:
        return sum(worker.job is not None for worker in self._workers)

    def ask(self, job: Job[T]) -> None:
        worker = next(worker for worker in self._workers if worker.job is None)
        worker.give(job)

    def hear(self, handle: Callable[[Message[T]], None], seconds: float | None = None) -> None:
        """Calls `handle` with the workers' messages, until at least one job has ended.

        With `seconds` it returns when no message has come for so long.
        """
        ended = False
        while not (ended and self._told.empty()):
            try:
                worker, body = self._told.get(timeout=seconds)
            except queue.Empty:
                return
            if body is None:
                replacement = self._replace(worker)
                if worker.job is not None and not worker.began:
                    self._count_start(worker)
                    replacement.give(worker.job)  # the worker died before it began the job
                    continue
                body = {"kind": "failed", "error": "client", "message": worker.obituary()}
            kind, job = body["kind"], worker.job
            if job is None or kind == "ready":
                continue
            if kind == "began":
                worker.began = True
                self._starts = 0
                continue
            if kind != "news":
                worker.job, ended = None, True
            handle(Message(job, kind, body))

    def _count_start(self, dead: _Worker[T]) -> None:
        """Raises AccordError if workers die again and again before they begin a job."""
        self._starts += 1
        if self._starts > MOST_STARTS:
            raise AccordError(
                f"workers ended {self._starts} times before they began a job: {dead.obituary()} "
                "Solve this problem and run the same command again."
            )

    def _replace(self, dead: _Worker[T]) -> _Worker[T]:
        """A new worker in place of a dead one. Raises AccordError if the dead one never started."""
        if not dead.came_up:
            raise AccordError(f"a worker could not start: {dead.obituary()} Try fewer workers.")
        at = self._workers.index(dead)
        self._workers[at] = self._start(dead.number)
        if self._record is not None:
            self._workers[at].open(self._record)
        return self._workers[at]

    def close(self) -> None:
        for worker in self._workers:
            worker.end()


class _Worker(Generic[T]):
    """One process, and the thread that reads its messages."""

    def __init__(self, number: int, command: Sequence[str], told: Told) -> None:
        self.number, self.came_up, self.began = number, False, False
        self.job: Job[T] | None = None
        self.log: Path | None = None
        self.log_start = 0
        # Its error output before it knows the path of its log. `end` closes the file.
        self.first_words = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(
            [sys.executable, *command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.first_words,
            text=True,
            encoding="utf-8",
            start_new_session=True,  # only the parent process handles Ctrl-C
            env={**GREEDY, **os.environ, **ONE_THREAD, **tied_environment()},
        )
        threading.Thread(target=self._hear, args=(told,), daemon=True).start()

    def open(self, record: Path) -> None:
        """Sends it the path of the record and of its log, which then gets its error output."""
        self.log = record.absolute() / "logs" / f"worker-{self.number}.log"
        append_text(self.log, "")  # a problem with the disk is found here, not by the worker
        self.log_start = self.log.stat().st_size
        self._send({"record": str(record.absolute()), "log": str(self.log)})

    def _hear(self, told: Told) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                body = json.loads(line)
            except ValueError:
                break  # the process was killed while it wrote this line
            self.came_up = True
            told.put((self, body))
        self.process.wait()
        told.put((self, None))

    def give(self, job: Job[T]) -> None:
        self.job, self.began = job, False
        self._send(job.task.to_json())

    def _send(self, content: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps(content) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died between two jobs; hear() will notice and give the job to a new worker

    def _said(self) -> str:
        """Its output besides its messages, such as error messages of libraries."""
        self.first_words.seek(0)
        said = self.first_words.read()
        if self.log is not None and self.log.exists():
            said += self.log.read_bytes()[self.log_start :]
        return said.decode(errors="replace")

    def obituary(self) -> str:
        """Why the process ended, according to its exit code and its last output."""
        code = self.process.returncode
        last = self._said().strip().splitlines()[-1:]
        quoted = f" Its last output was: {last[0]}" if last else ""
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = (
                " The system does this when memory runs out: use fewer workers, a smaller "
                "budget.batch or a smaller net.backbone."
                if name == "SIGKILL"
                else ""
            )
            return f"its worker process was killed by {name}.{hint}{quoted}"
        return f"its worker process ended with exit code {code}.{quoted}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        self.first_words.close()
        if self.log is not None and self.log.exists() and self.log.stat().st_size == 0:
            self.log.unlink()
