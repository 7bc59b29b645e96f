"""What the ServerApp does: it runs a study whose clients are Flower's nodes.

Its run configuration (pyproject.toml of the app, or `flwr run --run-config`):

out=""               the record's folder (default: runs/NAME, from where the SuperLink was started)
data-root=""         the folder of the datasets
min-clients=0        uploads that a round needs to go on; 0: all, or as the study says
deadline=86400       seconds that the server waits for the answer of a client
wait=60              seconds that the server waits for the node of a client to connect
nodes="", report=""  used by `accord flower local`
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from flwr.app import Context
from flwr.serverapp import Grid
from pydantic import Field

from accord.core.config import Config, keys, parse
from accord.core.errors import AccordError
from accord.core.files import write_json
from accord.engines.local import WORKER
from accord.engines.pool import Processes
from accord.federation.run import run_study
from accord.flower.engine import FlowerEngine, Patience
from accord.record.record import Record
from accord.report.progress import Plain
from accord.report.results import Results
from accord.report.terminal import show_results
from accord.study.study import load_study


class RunConfig(Config):
    """The run configuration of the app."""

    out: str = ""
    data_root: str = Field("", alias="data-root")
    min_clients: int = Field(0, ge=0, alias="min-clients")
    deadline: float = Field(86_400, gt=0)
    wait: float = Field(60, ge=0)
    nodes: str = ""
    report: str = ""


def run_app(grid: Grid, context: Context, study_file: Path) -> None:
    """Runs the study of an app, and prints its results into the log of the run."""
    given: dict[str, Any] = dict(context.run_config)
    known = {key: value for key, value in given.items() if key in keys(RunConfig)}
    config = parse(RunConfig, known, "run-config")
    report = _Report(Path(config.report) if config.report else None)
    report.write("running")
    try:
        failures = _run(grid, config, study_file, report)
    except AccordError as error:
        report.write("refused", str(error))
        print(f"accord: {error}", file=sys.stderr, flush=True)
        raise SystemExit(2) from None
    except BaseException as error:
        report.write("broken", f"{type(error).__name__}: {error}")
        raise
    report.write("failed" if failures else "finished", failures=failures)


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
            with self.path.with_suffix(".log").open("a", encoding="utf-8") as file:
                file.write(line + "\n")


class _Told(Plain):
    """Progress as plain lines, in the log of the run and in the report's log."""

    def __init__(self, report: _Report) -> None:
        super().__init__()
        self.report = report

    def tell(self, line: str) -> None:
        super().tell(line)
        self.report.line(line)
