"""The loop of a worker process: it performs one task after the other."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accord.balance import balances
from accord.engines.base import failure
from accord.federation.tasks import make_task, perform, tasks
from accord.fusion import fusions
from accord.methods import methods
from accord.nets.backbones import backbones
from accord.objective import terms
from accord.record.record import Record

Content = dict[str, Any]


def serve(waiting: queue.Queue[Content], answer: Callable[[Content], None]) -> None:
    """Performs the tasks in `waiting`; the first entry says where the record and the log are."""
    answer({"kind": "ready"})
    _load_parts()
    place = waiting.get()
    _write_log(place["log"])
    record = Record(Path(place["record"]))
    while True:
        content = waiting.get()
        answer({"kind": "began"})
        try:
            result = perform(
                make_task(content), record, lambda news: answer({"kind": "news", **news})
            )
            answer({"kind": "done", "result": result})
        except Exception as error:  # the boundary of the process: every failure must be reported
            answer({"kind": "failed", **failure(error)})


def _load_parts() -> None:
    """Imports all parts that a task may need before the first task arrives."""
    for family in (tasks, backbones, terms, balances, fusions, methods):
        family.names()


def _write_log(path: str) -> None:
    """Sends standard output and standard error to a file of the record from now on."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
