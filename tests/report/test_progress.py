"""Progress: every bar says which trial and client it shows, and names cannot control a terminal."""

from __future__ import annotations

import fcntl
import io
import os
import pty
import re
import signal
import struct
import sys
import termios
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

import accord
from accord.engines.base import Job
from accord.federation.plan import Plan
from accord.federation.tasks import Task
from accord.federation.trial_run import TrialRun
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.live.layout import View
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
    bars.console = Console(width=200, height=50, stderr=True, force_terminal=True)
    found = jobs(study, tmp_path)
    with bars.watching([run for run, _ in found]):
        for run, job in found:
            bars.started(run, job)
            bars.news(run, job, 0.25)
    lines = [f"{bar.trial} {bar.what}" for bar in bars.picture().bars]
    assert len(set(lines)) == len(found) == 12
    assert "fafi (α 0.1, epochs 2, seed 0) client north" in lines
    assert all(line.isprintable() for line in lines)
    with bars.console.capture() as captured:
        bars.console.print(View(bars.picture))  # a name is never read as markup
    assert "client [/red]" in captured.get()
    assert "\x1b[2J" not in captured.get()
    assert " 25%" in captured.get()


def test_the_view_follows_a_run_and_reads_a_trial_only_when_it_changes(
    study: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Trials of an earlier run count as finished, and a trial's files are read few times."""
    study["budget"]["epochs"] = 40  # the view is drawn four times in a second
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    read: list[str] = []
    measures = TrialFolder.measures

    def counted(folder: TrialFolder) -> dict[str, Any]:
        read.append(folder.id)
        return measures(folder)

    bars = Bars()
    bars.console = Console(file=io.StringIO(), width=250, height=30, force_terminal=True)
    monkeypatch.setattr("accord.api.make_watcher", lambda: bars)
    monkeypatch.setattr("accord.report.live.lines.TrialFolder.measures", counted)
    found = accord.run(study, overrides=["seeds=[0,1]"], out=tmp_path, workers=1)
    last = bars.picture()
    assert (last.asked, last.count("finished"), last.waiting, last.bars) == (2, 2, 0, ())
    (standing,) = last.standings
    assert standing.finished == pytest.approx([row["accuracy"] for row in found.rows])
    assert len(read) < 20
    assert bars.trials.keys() == {row["trial"] for row in found.rows}
    shown = bars.console.file
    assert isinstance(shown, io.StringIO)
    assert "1 of 2 trials finished, 1 running" in shown.getvalue()


def test_ctrl_c_leaves_a_clean_terminal(study: dict[str, Any], tmp_path: Path) -> None:
    """A real terminal: the view is erased, the cursor comes back, and one line is left."""
    (tmp_path / "s.yaml").write_text(yaml.safe_dump({**study, "budget": {"epochs": 5_000}}))
    command = ["run", str(tmp_path / "s.yaml"), "--out", str(tmp_path / "r"), "--workers", "1"]
    child, terminal = pty.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # a shell ignores it for background jobs
        os.environ["TERM"] = "xterm"
        os.execv(sys.executable, [sys.executable, "-m", "accord", *command])
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    shown = b""
    with suppress(OSError):  # the terminal is closed at the end
        while b"client " not in shown:
            shown += os.read(terminal, 65536)
        os.write(terminal, b"\x03")
        while True:
            shown += os.read(terminal, 65536)
    _, status = os.waitpid(child, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 130
    before, end = shown.decode().rsplit("\x1b[?25h", 1)  # the cursor is visible again
    assert "\x1b[?25l" in before
    left = re.sub(r"\x1b\[[0-9]*[AK]|\r|\n", "", end)  # without the signs that erase the view
    assert left == "accord: stopped. Run the same command again to go on."
    assert "Traceback" not in shown.decode()


def test_lines_with_names_are_plain_text(capsys: pytest.CaptureFixture[str]) -> None:
    for watcher in (Plain(), Bars()):
        watcher.tell(f"client {NAMES[2]} and {NAMES[1]}")
    told = capsys.readouterr().err
    assert "\x1b" not in told
    assert told.count("[/red]") == 2
