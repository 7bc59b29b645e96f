"""A worker process: reads tasks from standard input, answers on standard output, in JSON lines.

It is started as a program of its own rather than forked, so that it works the same
from a script, a notebook and a test, and nothing is ever pickled. When its parent is gone, its
standard input ends, and it ends at once.
"""

from __future__ import annotations

import json
import os
import queue
import sys
import threading
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


def main() -> None:
    # Standard output belongs to the protocol: what libraries print goes to the log instead.
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)
    waiting: queue.Queue[dict[str, Any]] = queue.Queue()
    threading.Thread(target=_listen, args=(waiting,), daemon=True).start()

    def answer(message: dict[str, Any]) -> None:
        try:
            answers.write(json.dumps(message) + "\n")
        except BrokenPipeError:
            os._exit(0)  # nobody is left to hear it

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
    """Imports all that tasks may need, while nobody waits for it."""
    for family in (tasks, backbones, terms, balances, fusions, methods):
        family.names()


def _write_log(path: str) -> None:
    """From now on, standard output and error go to a file of the record."""
    log = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)


def _listen(waiting: queue.Queue[dict[str, Any]]) -> None:
    for line in sys.stdin:
        waiting.put(json.loads(line))
    os._exit(0)


if __name__ == "__main__":
    main()
