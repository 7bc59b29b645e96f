"""From a study to results: load data, deal it out, run every trial, record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from accord.engines.local import Watcher, execute
from accord.engines.pool import make_pool
from accord.engines.run import Run
from accord.errors import AccordError
from accord.plan import Plan
from accord.progress import Silent, make_watcher
from accord.record import Record
from accord.results import Results
from accord.study import Study, load_study


def run(
    study: Study | Path | str | Mapping[str, Any],
    *,
    overrides: Sequence[str] = (),
    out: Path | str | None = None,
    workers: int | None = None,
    data_root: Path | str | None = None,
    quiet: bool = False,
) -> Results:
    """Runs a study (a YAML file, a mapping or a checked Study) and returns its results.

    A record that is there already is continued: only what is new trains. Failed trials are listed
    in `results.failures`. Mistakes of the user raise AccordError.
    """
    if isinstance(study, Study) and overrides:
        raise AccordError("overrides are for a study's file or mapping; this one is checked.")
    checked = study if isinstance(study, Study) else load_study(study, overrides)
    record = Record(Path(out) if out else Path("runs") / checked.name)
    watcher: Watcher = Silent() if quiet else make_watcher()
    count = workers_for(workers)
    plan = Plan(checked, Path(data_root) if data_root else None, watcher.tell)
    try:
        record.refuse_another(checked)
        plan.check()  # mistakes show before anything is written
        with record.lock():
            runs = plan.runs(record)
            deals = {one.deal_path: one for one in runs}.values()
            for one in deals:
                record.refuse_changed(checked, one.deal.data, one.deal.dataset.folder.name)
            plan.keep_sources(record)
            record.adopt(checked)
            for one in deals:
                one.save_deal(record)
            execute_runs(runs, record, count, watcher)
            record.write_results()
        failures = {run.folder.id: run.failures for run in runs if run.failures}
    except OSError as error:
        raise AccordError(
            f"cannot write to {error.filename or record.path}: {error.strerror or error}. Mend "
            "that and run the same command again: it goes on where it stopped."
        ) from error
    return replace(Results.of(record), failures=failures)


def execute_runs(runs: Sequence[Run], record: Record, workers: int, watcher: Watcher) -> None:
    for run in runs:
        run.tidy()  # a former run may have ended between its last result and its tidying
    todo = [run for run in runs if not run.over]
    if not todo:
        return
    pool = make_pool(
        min(workers, max(len(run.clients) for run in todo) * len(todo)), record.path / "logs"
    )
    try:
        with watcher.watching(todo):
            execute(runs, pool, watcher, record.write_results)
    finally:
        pool.close()


def workers_for(asked: int | None) -> int:
    """One worker per core that this process may use, unless told otherwise."""
    if asked is not None and asked < 1:
        raise AccordError(f"--workers: expected 1 or more; found {asked}.")
    available = getattr(os, "sched_getaffinity", None)
    cores = len(available(0)) if available else os.cpu_count() or 1
    return asked or cores
