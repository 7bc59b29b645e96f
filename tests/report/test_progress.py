"""Progress: every bar says which trial and client it shows, and names cannot control a terminal."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from accord.engines.base import Job
from accord.federation.plan import Plan
from accord.federation.tasks import Task
from accord.federation.trial_run import TrialRun
from accord.record.record import Record
from accord.report.progress import Bars, Plain
from accord.study.study import load_study

NAMES = ("north", "[/red]", "\x1b[2Jclear\nline")


def jobs(study: dict[str, Any], folder: Path) -> list[tuple[TrialRun, Job[Task]]]:
    """The jobs of clients with hard names, in every cell of a grid."""
    asked = {**study, "budget": {"epochs": [1, 2]}, "partition": {"alpha": [0.5, 0.1]}}
    runs = Plan(load_study(asked), None, print).runs(Record(folder))
    trials = [run for run in runs if isinstance(run, TrialRun)]
    return [(run, run.question(name, 0, 1.0)) for run in trials for name in NAMES]


def test_every_bar_reads_differently_and_is_plain_text(
    study: dict[str, Any], tmp_path: Path
) -> None:
    bars = Bars()
    bars.console.width = 200
    found = jobs(study, tmp_path)
    for run, job in found:
        bars.started(run, job)
    lines = [str(task.description) for task in bars.bars.tasks]
    assert len(set(lines)) == len(found) == 12
    assert "fafi (α 0.1, epochs 2, seed 0) client north" in lines
    assert all(line.isprintable() for line in lines)
    with bars.console.capture() as captured:
        bars.console.print(bars.bars)  # a name is never read as markup
    assert "client [/red]" in captured.get()
    assert "\x1b[2J" not in captured.get()


def test_lines_with_names_are_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    for watcher in (Plain(), Bars()):
        watcher.tell(f"client {NAMES[2]} and {NAMES[1]}")
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert told.count("[/red]") == 2
