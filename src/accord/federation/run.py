"""Runs a study: allocates its images, executes every trial, and records the results."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.partials import sweep_tree
from accord.engines.base import Engine
from accord.federation.execute import Watcher, execute
from accord.federation.plan import Plan
from accord.federation.tasks import Task
from accord.federation.work import Run
from accord.record.record import Record
from accord.study.study import Study
from accord.trackers.tracking import Tracking


def run_study(
    study: Study,
    record: Record,
    data_root: Path | None,
    engine: Engine[Task],
    watcher: Watcher,
    *,
    elsewhere: bool = False,
    min_clients: int | None = None,
) -> dict[str, list[str]]:
    """Runs or continues `study`. Returns the reasons of failure of each failed trial.

    `elsewhere`: the engine can ask clients on other machines. `min_clients`: a round goes on with
    so many uploads; by default it needs all, or as many as the study says.
    """
    tracking = Tracking(study.options.track, record, watcher.tell)
    plan = Plan(
        study,
        data_root,
        watcher.tell,
        remembered=record.roots(),
        elsewhere=elsewhere,
        min_clients=min_clients,
    )
    try:
        record.refuse_another(study)
        plan.check()  # mistakes are reported before anything is written
        with record.lock():
            sweep_tree(record.path)
            runs = plan.runs(record)
            holders = {one.key: one for one in runs}.values()
            for one in holders:
                images = one.allocation.dataset.folder.name
                record.refuse_changed(study, one.allocation.data, images)
            plan.keep_sources(record)
            record.adopt(study)
            for one in holders:
                one.save_allocation()
            record.keep_roots(plan.roots)
            execute_runs(runs, record, engine, watcher, tracking)
            record.write_results()
            for run in runs:
                _track(run, tracking)  # also trials that were finished before
    except OSError as error:
        raise AccordError(
            f"cannot write to {error.filename or record.path}: {error.strerror or error}. Solve "
            "this problem and run the same command again: it continues where it stopped."
        ) from error
    return {run.folder.id: run.failures for run in runs if run.failures}


def execute_runs(
    runs: Sequence[Run],
    record: Record,
    engine: Engine[Task],
    watcher: Watcher,
    tracking: Tracking | None = None,
) -> None:
    def on_result(run: Run) -> None:
        record.write_results()
        if tracking is not None:
            _track(run, tracking)

    for run in runs:
        run.tidy()  # an earlier process may have been stopped before it removed these files
    if all(run.over for run in runs):
        return
    engine.open(record.path)
    with watcher.watching(runs):
        execute(runs, engine, watcher, on_result)


def _track(run: Run, tracking: Tracking) -> None:
    if run.kind == "trial" and run.over:
        tracking.add(run.folder)
