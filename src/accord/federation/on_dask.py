"""The jobs of a study at the workers of a Dask cluster.

Workers import `work` and `examine` from this module by their names.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.data.allocation_file import AllocationFile
from accord.data.datasets import open_cached
from accord.engines.base import Engine
from accord.engines.cluster import Cluster, Remote
from accord.engines.dask_worker import do_job
from accord.engines.fitness import description
from accord.federation.tasks import Task, make_task, perform
from accord.record.record import Record


def on_cluster(address: str, tell: Callable[[str], None]) -> Engine[Task]:
    """The engine whose workers are those of a Dask cluster."""
    return Cluster(address, Remote(work, examine, question), tell)


def question(record: Path) -> dict[str, Any]:
    """What a worker must see besides the record: the folders of decoded images."""
    found = (AllocationFile.read(path).folder for path in sorted(record.glob("allocations/*.json")))
    # The record may hold older allocations, whose images this process does not have either.
    return {"images": [folder for folder in dict.fromkeys(found) if Path(folder).exists()]}


def work(text: str) -> str:
    """Does a task at a worker."""
    return do_job(text, lambda task, record, tell: perform(make_task(task), Record(record), tell))


def examine(text: str) -> str:
    """Tells the software of a worker, and what it cannot see or write."""
    return json.dumps({"software": description(), "problem": _problem(json.loads(text))})


def _problem(asked: dict[str, Any]) -> str | None:
    record = Path(asked["record"])
    try:
        found = (record / asked["file"]).read_text()
    except OSError:
        found = ""
    if found != asked["content"]:
        return (
            f"it does not see the record in {record}. Choose with --out a folder that all machines "
            "share under the same path."
        )
    try:
        with tempfile.NamedTemporaryFile(prefix=".writable.", dir=record):
            pass
    except OSError as error:
        return f"it cannot write to the record in {record}: {error.strerror}. Make it writable."
    for folder in asked["images"]:
        try:
            open_cached(Path(folder))
        except AccordError:
            return (
                f"it cannot read the decoded images in {folder}. Set ACCORD_CACHE, for the process "
                "that runs the study, to a folder that all machines share under the same path."
            )
    return None
