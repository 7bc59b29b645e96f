"""The local engine's own promises: devices, memory, progress, and who waits for whom."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.federation.devices import choose_device
from accord.federation.plan import Plan
from accord.record.record import Record
from accord.report.durations import spoken
from accord.report.progress import Plain, Work, make_watcher
from accord.study.study import load_study

Raw = dict[str, Any]


def test_each_client_may_have_its_own_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    asked: dict[int | str, str] = {0: "cuda:0", "1": "cpu"}
    assert [choose_device(asked, client) for client in "012"] == ["cuda:0", "cpu", "cuda"]
    assert choose_device("auto", "0") == "cuda"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert choose_device("auto", "0") == "cpu"


def test_a_device_per_client_runs(study: Raw, tmp_path: Path) -> None:
    study["device"] = {0: "cpu", 2: "cpu"}
    assert len(accord.run(study, out=tmp_path, workers=1, quiet=True).rows) == 1


def test_out_of_memory_says_what_to_make_smaller(study: Raw, tmp_path: Path) -> None:
    """A real shortage: the process may take little more than it already holds."""
    code = f"""
import resource, accord.api, psutil
study = {study!r}
study["net"]["backbone"] = "resnet18"
study["data"] = {{"name": "digits", "image": 64}}
study["budget"] = {{"epochs": 1, "batch": 128}}
study["partition"] = {{"scheme": "iid", "clients": 1}}
limit = psutil.Process().memory_info().vms + 2 * 10**9
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
results = accord.run(study, out={str(tmp_path / "r")!r}, workers=1, quiet=True)
print(results.failures)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "out of memory" in done.stdout, done.stderr
    assert "budget.batch (now 128) smaller" in done.stdout
    assert "resnet18" in done.stdout


def test_what_is_left_to_do_is_known_before_it_starts(study: Raw, tmp_path: Path) -> None:
    """150 images × 2 epochs × 2 views, and 60 test images through 3 nets at a third of a step."""
    checked = load_study(study)
    plan = Plan(checked, None, print)
    runs = plan.runs(Record(tmp_path / "unmade"))
    assert Work(runs).total == pytest.approx(150 * 2 * 2 + 60 * 3 / 3)
    accord.run(checked, out=tmp_path / "made", workers=1, quiet=True)
    assert [run.status for run in plan.runs(Record(tmp_path / "made"))] == ["finished"]


def test_what_an_interrupted_run_had_done_is_not_taken_for_speed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [0.0]
    monkeypatch.setattr("accord.report.progress.time.monotonic", lambda: clock[0])
    work = Work([])
    work.total = 1_000.0
    for size in (100, 200, 400):  # epochs of before, told at once
        work.heard(1, size, restored=True)
    assert work.share() == pytest.approx(0.4)
    assert work.left() is None
    clock[0] = 10.0
    work.heard(1, 500)
    assert work.left() == pytest.approx(50)  # 100 in 10 s, 500 to go


def test_piped_progress_is_plain_lines_with_an_estimate(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("accord.report.progress.PLAIN_EVERY", 0.0)
    study["budget"]["epochs"] = 6
    accord.run(study, out=tmp_path, workers=1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "trials to run: 1"
    assert any("done, about" in line and "left" in line for line in lines)
    assert lines[-1].endswith("finished")
    assert not any("\x1b" in line for line in lines)


@pytest.mark.parametrize(
    ("seconds", "said"), [(0.4, "0 s"), (59.4, "59 s"), (61, "1 min 01 s"), (3660, "1 h 01 min")]
)
def test_durations_as_people_say_them(seconds: float, said: str) -> None:
    assert spoken(seconds) == said


def test_plain_is_for_everyone_without_a_terminal() -> None:
    assert isinstance(make_watcher(), Plain)
