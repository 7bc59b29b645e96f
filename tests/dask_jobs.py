"""Jobs for workers of a Dask cluster that need no torch, so that a worker does them at once."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.files import write_atomic
from accord.engines.dask_worker import Content, do_job
from accord.engines.fitness import description

LONG = 20.0  # seconds that a long job takes


def nothing(record: Path) -> dict[str, Any]:  # noqa: ARG001
    return {}


def examine(text: str) -> str:
    seen = (Path(json.loads(text)["record"]) / ".cluster").exists()
    return json.dumps({"software": description(), "problem": None if seen else "it is blind"})


def work(text: str) -> str:
    return do_job(text, _perform)


def _perform(task: Content, record: Path, tell: Any) -> Content:
    """Does what the name of the task says."""
    name = task["name"]
    if name == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    if name == "refuse":
        raise AccordError("nobody can juggle")
    if name == "crash":
        raise ZeroDivisionError("no such luck")
    tell({"event": {"epoch": 1}, "share": 0.5})
    ends = time.monotonic() + LONG
    while name == "long" and time.monotonic() < ends:
        time.sleep(0.05)
        tell({"share": 0.5})
    write_atomic(record / "made" / f"{name}.txt", b"whole")
    return {"process": os.getpid()}
