"""Worker processes and the jobs they hold; or, with one worker, this very process."""

from __future__ import annotations

import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

from accord.engines.jobs import Job, perform
from accord.engines.worker import failure
from accord.errors import AccordError

# glibc would give the memory of every step back to the system and fault it in again: keeping it
# takes some more memory and makes steps faster, of small nets most.
GREEDY = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30)}
COMMAND = [sys.executable, "-c", "from accord.engines.worker import main; main()"]


@dataclass(frozen=True)
class Message:
    """What became of a job, or news of it: `body` is the worker's own JSON."""

    job: Job
    kind: Literal["news", "done", "failed"]
    body: dict[str, Any]


Handler = Callable[[Message], None]


class Pool(Protocol):
    """Takes jobs while it has a free worker, and tells what becomes of them."""

    def free(self) -> int: ...
    def busy(self) -> int: ...
    def start(self, job: Job) -> None: ...
    def hear(self, handle: Handler) -> None: ...
    def close(self) -> None: ...


class InProcess:
    """One worker that is this process: for debugging, and where no process can be started."""

    def __init__(self) -> None:
        self._job: Job | None = None

    def free(self) -> int:
        return 0 if self._job else 1

    def busy(self) -> int:
        return 1 if self._job else 0

    def start(self, job: Job) -> None:
        self._job = job

    def hear(self, handle: Handler) -> None:
        """Does the job here and now; a debugger sees every frame from the command to the loss."""
        job = self._job
        if job is None:
            return
        try:
            result = perform(job.kind, job.args, lambda news: handle(Message(job, "news", news)))
            ended = Message(job, "done", {"result": result})
        except Exception as error:  # the same boundary as a worker process has
            ended = Message(job, "failed", failure(error))
        self._job = None
        handle(ended)

    def close(self) -> None:
        pass


class Processes:
    """Several workers, each a process with one thread."""

    def __init__(self, workers: int, log_folder: Path) -> None:
        self._told: queue.Queue[tuple[_Worker, dict[str, Any] | None]] = queue.Queue()
        self._log_folder = log_folder
        self._workers = [_Worker(number, log_folder, self._told) for number in range(workers)]

    def free(self) -> int:
        return sum(worker.job is None for worker in self._workers)

    def busy(self) -> int:
        return sum(worker.job is not None for worker in self._workers)

    def start(self, job: Job) -> None:
        worker = next(worker for worker in self._workers if worker.job is None)
        worker.give(job)

    def hear(self, handle: Handler) -> None:
        """Passes on what the workers say, until at least one job has ended."""
        ended = False
        while not (ended and self._told.empty()):
            worker, body = self._told.get()
            if body is None:
                replacement = self._replace(worker)
                if worker.job is not None and not worker.began:
                    replacement.give(worker.job)  # it died before it could begin: nobody's fault
                    continue
                body = {"kind": "failed", "error": "client", "message": worker.obituary()}
            kind, job = body["kind"], worker.job
            if job is None or kind == "ready":
                continue
            if kind == "began":
                worker.began = True
                continue
            if kind != "news":
                worker.job, ended = None, True
            handle(Message(job, kind, body))

    def _replace(self, dead: _Worker) -> _Worker:
        """A new worker in the place of one that died. One that never came up ends it all."""
        if not dead.came_up:
            raise AccordError(f"a worker could not start: {dead.obituary()} Try --workers 1.")
        at = self._workers.index(dead)
        self._workers[at] = _Worker(dead.number, self._log_folder, self._told)
        return self._workers[at]

    def close(self) -> None:
        for worker in self._workers:
            worker.end()


class _Worker:
    """One process, and the thread that hears it."""

    def __init__(
        self,
        number: int,
        log_folder: Path,
        told: queue.Queue[tuple[_Worker, dict[str, Any] | None]],
    ) -> None:
        self.number, self.came_up, self.began = number, False, False
        self.job: Job | None = None
        log_folder.mkdir(parents=True, exist_ok=True)
        self.log = log_folder / f"worker-{number}.log"
        self.log_start = self.log.stat().st_size if self.log.exists() else 0
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                encoding="utf-8",
                start_new_session=True,  # Ctrl-C is the parent's to act on
                env={**GREEDY, **os.environ, "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"},
            )
        threading.Thread(target=self._hear, args=(told,), daemon=True).start()

    def _hear(self, told: queue.Queue[tuple[_Worker, dict[str, Any] | None]]) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            try:
                body = json.loads(line)
            except ValueError:
                break  # killed in the middle of a line
            self.came_up = True
            told.put((self, body))
        self.process.wait()
        told.put((self, None))

    def give(self, job: Job) -> None:
        self.job, self.began = job, False
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(json.dumps({"kind": job.kind, "args": job.args}) + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it died between two jobs: its end is heard, and the job given on, in hear()

    def obituary(self) -> str:
        """Why it died, as far as one can tell from outside."""
        code = self.process.returncode
        said = self.log.read_bytes()[self.log_start :].decode(errors="replace")
        last = said.strip().splitlines()[-1:]
        quoted = f" It last said: {last[0]}" if last else ""
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            hint = (
                " The system does this when memory runs out: use fewer --workers, a smaller "
                "budget.batch or a smaller net.backbone."
                if name == "SIGKILL"
                else ""
            )
            return f"its worker process was killed by {name}.{hint}{quoted}"
        return f"its worker process ended with exit code {code}.{quoted}"

    def end(self) -> None:
        self.process.kill()
        self.process.wait()
        if self.log.exists() and self.log.stat().st_size == 0:
            self.log.unlink()


def make_pool(workers: int, log_folder: Path) -> Pool:
    return InProcess() if workers == 1 else Processes(workers, log_folder)
