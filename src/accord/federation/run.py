"""Runs a study: allocate its images, take every trial to its end, record the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.engines.base import Engine
from accord.federation.execute import Watcher, execute
from accord.federation.plan import Plan
from accord.federation.tasks import Task
from accord.federation.work import Run
from accord.record.record import Record
from accord.study.study import Study


def run_study(
    study: Study, record: Record, data_root: Path | None, engine: Engine[Task], watcher: Watcher
) -> dict[str, list[str]]:
    """Runs or continues `study`; returns the reasons of each trial that failed."""
    plan = Plan(study, data_root, watcher.tell)
    try:
        record.refuse_another(study)
        plan.check()  # mistakes show before anything is written
        with record.lock():
            runs = plan.runs(record)
            holders = {one.key: one for one in runs}.values()
            for one in holders:
                images = one.allocation.dataset.folder.name
                record.refuse_changed(study, one.allocation.data, images)
            plan.keep_sources(record)
            record.adopt(study)
            for one in holders:
                one.save_allocation()
            execute_runs(runs, record, engine, watcher)
            record.write_results()
    except OSError as error:
        raise AccordError(
            f"cannot write to {error.filename or record.path}: {error.strerror or error}. Mend "
            "that and run the same command again: it goes on where it stopped."
        ) from error
    return {run.folder.id: run.failures for run in runs if run.failures}


def execute_runs(
    runs: Sequence[Run], record: Record, engine: Engine[Task], watcher: Watcher
) -> None:
    for run in runs:
        run.tidy()  # a former run may have ended between its last result and its tidying
    todo = [run for run in runs if not run.over]
    if not todo:
        return
    engine.open(record.path)
    with watcher.watching(todo):
        execute(runs, engine, watcher, record.write_results)
