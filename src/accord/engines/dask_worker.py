"""A job at a Dask worker: it takes JSON text, tells its progress, and returns JSON text.

May two processes do the same job at the same time? This happens if a worker that is thought lost
still runs. It does no harm: a job's result does not depend on where it is computed, every file is
written under a name of its own and then renamed (core/files.py), and the answer of a lost worker is
never used. A file is therefore always whole, and both processes write the same tensors. At worst a
file of a finished round appears again, which nothing reads.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accord.core.files import written_files
from accord.engines.base import failure

TELL_EVERY = 1.0  # seconds between two reports of progress: a scheduler serves many workers

# A job sets the number of threads of torch for its whole process. A worker with several threads,
# or one that two studies use, must still do one job after the other.
_one_at_a_time = threading.Lock()

Content = dict[str, Any]
Perform = Callable[[Content, Path, Callable[[Content], None]], Content]


class NotWantedError(Exception):
    """The process that gave the job has cancelled it, or is gone."""


def do_job(text: str, perform: Perform) -> str:
    """Does the job that `text` describes, and returns a message about its end."""
    content = json.loads(text)
    record, tell = Path(content["record"]), _Telling(content["topic"], content["call"])
    with _one_at_a_time:
        try:
            tell.stop_if_not_wanted()
            with written_files() as paths:
                result = perform(content["task"], record, tell)
            files = [path.relative_to(record).as_posix() for path in paths if path.exists()]
            return json.dumps({"kind": "done", "result": result, "files": files})
        except Exception as error:  # the boundary of the process: every failure must be reported
            return json.dumps({"kind": "failed", **failure(error)})


class _Telling:
    """Sends news to the process that gave the job, and stops a job that is not wanted any more."""

    def __init__(self, topic: str, call: int) -> None:
        from distributed import get_worker

        self.topic, self.call = topic, call
        self.worker = get_worker()
        self.key = self.worker.get_current_task()
        self.told = 0.0

    def __call__(self, news: Content) -> None:
        self.stop_if_not_wanted()
        now = time.monotonic()
        if "event" not in news and now - self.told < TELL_EVERY:
            return
        self.told = now
        self.worker.log_event(self.topic, json.dumps({"call": self.call, **news}))

    def stop_if_not_wanted(self) -> None:
        """Dask cannot stop a thread. Without this, a job would go on for hours after Ctrl-C."""
        task = self.worker.state.tasks.get(self.key)
        alive = self.worker.status.name in ("running", "paused", "closing_gracefully")
        if task is None or task.state != "executing" or not alive:
            raise NotWantedError
