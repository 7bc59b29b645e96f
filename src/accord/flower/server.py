"""What the ServerApp does: it runs a study whose clients are Flower's nodes."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any, NoReturn

from flwr.app import Context
from flwr.serverapp import Grid

from accord.core.errors import AccordError
from accord.core.files import append_text, write_json
from accord.core.text import clean
from accord.engines.local import WORKER
from accord.engines.pool import Processes
from accord.federation.run import run_study
from accord.flower.engine import FlowerEngine, Patience
from accord.flower.run_config import RunConfig
from accord.record.record import Record
from accord.report.progress import Plain
from accord.report.results import Results
from accord.report.terminal import show_results
from accord.study.study import load_study


def run_app(grid: Grid, context: Context, study_file: Path) -> None:
    """Runs the study of an app, and prints its results into the log of the run."""
    given: dict[str, Any] = dict(context.run_config)
    report = _Report(Path(str(given["report"])) if given.get("report") else None)
    report.write("running")
    try:
        failures = _run(grid, RunConfig.of(given, "run-config"), study_file, report)
    except AccordError as error:
        report.write("refused", str(error))
        _end_with(str(error))
    except BaseException as error:
        report.write("broken", f"{type(error).__name__}: {error}")
        raise
    report.write("failed" if failures else "finished", failures=failures)
    if failures:
        _end_with(f"some trials failed: {', '.join(failures)}")


def _end_with(said: str) -> NoReturn:
    """Ends the run as a failed one. Flower shows an error, which is this sentence alone."""
    print(clean(f"accord: {said}"), file=sys.stderr, flush=True)
    sys.tracebacklimit = 0
    raise AccordError(said) from None


def _run(grid: Grid, config: RunConfig, study_file: Path, report: _Report) -> dict[str, list[str]]:
    study = load_study(study_file)
    record = Record(Path(config.out) if config.out else Path("runs") / study.name)
    watcher = _Told(report)
    engine = FlowerEngine(
        grid,
        Processes(1, WORKER),  # in a process of its own, so that nodes can be heard meanwhile
        Patience(connect=config.wait, answer=config.deadline),
        watcher.tell,
        Path(config.nodes) if config.nodes else None,
    )
    root = Path(config.data_root) if config.data_root else None
    try:
        failures = run_study(
            study,
            record,
            root,
            engine,
            watcher,
            elsewhere=True,
            min_clients=config.min_clients or None,
        )
    finally:
        engine.close()
    results = Results.of(record)
    show_results(results)
    return failures


class _Report:
    """A file that tells the process that started everything how the run goes."""

    def __init__(self, path: Path | None) -> None:
        self.path = path

    def write(
        self, status: str, message: str = "", failures: dict[str, list[str]] | None = None
    ) -> None:
        if self.path is not None:
            content = {"status": status, "message": message, "failures": failures or {}}
            write_json(self.path, {**content, "pid": os.getpid()})

    def line(self, line: str) -> None:
        if self.path is not None:
            append_text(self.path.with_suffix(".log"), line + "\n")


class _Told(Plain):
    """Progress as plain lines, in the log of the run and in the report's log."""

    def __init__(self, report: _Report) -> None:
        super().__init__()
        self.report = report

    def tell(self, line: str) -> None:
        super().tell(line)
        self.report.line(line)
