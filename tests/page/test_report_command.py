"""`accord report`: files it writes and refuses, and records that are not whole."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

import accord as package
from accord.core.errors import AccordError
from accord.page.contents import read_report
from accord.page.render.html import MARK
from accord.page.write import make_report, write_report
from command_line import Here
from page.made import full_trial, small_run
from written_runs import trial, write_run


def test_the_command_writes_a_page_and_prints_tables(tmp_path: Path, here: Here) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", seed, [0.3, 0.5]) for seed in (0, 1)])
    done = here("report", str(run))
    assert done[:2] == (0, f"report: {run / 'report.html'}\n")
    assert MARK in (run / "report.html").read_text("utf-8")
    assert here("report", str(run), "--baseline", "fafi:average").code == 0  # ours is replaced
    assert "| fafi (average) |" in here("report", str(run), "--markdown").out
    both = here("report", str(run), "--markdown", "--latex")
    assert both.code == 2
    missing = here("report", str(tmp_path / "nowhere"))
    assert missing.code == 2
    assert "not a run directory" in missing.error
    assert not (tmp_path / "nowhere").exists()


def test_from_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = [
        write_run(tmp_path / name, [full_trial("fafi", seed, [0.5])])
        for seed, name in enumerate(("one", "two"))
    ]
    assert package.write_report(runs[0], "page.html") == Path("page.html")
    assert package.write_report(runs) == Path("report.html")
    text = Path("report.html").read_text("utf-8")
    assert "<h1>one, two</h1>" in text


def test_other_files_are_not_replaced(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", 0, [0.5])])
    mine = tmp_path / "mine.html"
    mine.write_text("<html>my own page</html>")
    with pytest.raises(AccordError, match="is no page of accord report"):
        write_report([run], mine)
    assert mine.read_text() == "<html>my own page</html>"
    with pytest.raises(AccordError, match="is a folder"):
        write_report([run], tmp_path)
    write_report([run], tmp_path / "t.md", "markdown")
    with pytest.raises(AccordError, match="was not written by accord report --latex"):
        write_report([run], tmp_path / "t.md", "latex")
    write_report([run], tmp_path / "t.md", "markdown")
    with pytest.raises(AccordError, match="expected a file in a folder that exists"):
        write_report([run], mine / "below" / "page.html")


def test_what_is_no_record_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder in ("empty", "nowhere"):
        with pytest.raises(AccordError, match="not a run directory"):
            make_report([tmp_path / folder], "markdown")
    run = write_run(tmp_path / "run", [full_trial("fafi", 0, [0.5])])
    with pytest.raises(AccordError, match="no trial has 'x' in its name"):
        make_report([run], "markdown", trial="x")


def test_a_run_without_results(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [trial("fafi", 0, [], status="running")])
    text = make_report([run], "markdown")
    assert "No trial is finished" in text
    assert "No trial of run has results yet." in text
    assert "1 trial is running in run." in text
    empty = write_run(tmp_path / "empty", [])
    assert "No trial could be read." in make_report([empty], "markdown")


def test_a_half_finished_run_shows_what_there_is(tmp_path: Path) -> None:
    trials = [full_trial("fafi", 0, [0.3, 0.5]), full_trial("etf", 0, [0.4], status="running")]
    _, sections = read_report([write_run(tmp_path / "run", trials)])
    found = {section.id: str(section) for section in sections}
    assert "1 trial is running in run." in found["question"]
    assert "etf (average)" not in found["headline"]
    assert "etf-0-01" in found["trials"]


def test_damaged_files_are_named(tmp_path: Path) -> None:
    """Every file is broken in turn, in several ways; the rest is still shown."""
    whole = small_run(tmp_path / "whole")
    names = sorted(path.name for path in whole.joinpath("trials").iterdir())
    victim = next(name for name in names if name.startswith("etf-attenuated"))
    nonsense = ("{", "[]", '{"checkpoints": [{"epoch": 1}]}', "\x00\xff")
    for file in ("trial.json", "measures.json", "events.jsonl"):
        for content in nonsense:
            run = tmp_path / "run"
            shutil.copytree(whole, run)
            (run / "trials" / victim / file).write_text(content + "\n")
            text = make_report([run], "markdown")
            assert "fafi (average)" in text, (file, content)
            assert "cannot be made" not in text, (file, content)
            shutil.rmtree(run)
    (whole / "study.yaml").write_text("[")
    text = make_report([whole], "markdown")
    assert "The study of whole cannot be read" in text
    assert "fafi (average)" in text


def test_odd_values_are_no_reason_to_fail(tmp_path: Path) -> None:
    """An older format, or a newer one: keys are missing or have other types."""
    of_trial: list[tuple[str, Any]] = [
        ("label_counts", [[1], [2, 3]]), ("label_counts", "x"), ("classes", ["a"]),
        ("client_files", []), ("config", {}), ("versions", "old"), ("partition_hash", None),
        ("alpha", "wide"), ("failures", ["x"]), ("seed", None),
    ]  # fmt: skip
    of_fusion: list[tuple[str, Any]] = [
        ("confusion", [[1, 2]]), ("reliability", [1, 2]), ("reliability", "x"),
        ("examples", [{"image": "x"}]), ("leave_one_out", 5),
    ]  # fmt: skip
    for index, (key, value) in enumerate([*of_trial, *of_fusion]):
        given = full_trial("fafi", 0, [0.3, 0.5])
        last = given["checkpoints"][-1]["fusions"]["average"]
        (given["info"] if index < len(of_trial) else last)[key] = value
        _, sections = read_report([write_run(tmp_path / f"{index}", [given])])
        assert "fafi" in str(sections)
        assert "cannot be made" not in str(sections), (key, value)


def test_two_studies_on_one_page(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [full_trial("fafi", 0, [0.5])])
    other = full_trial("fedavg", 0, [0.7], classes=["x", "y"], config={"budget": {"lr": 0.1}})
    other["info"]["dataset"] = "svhn"
    two = write_run(tmp_path / "two", [other], {"budget": {"lr": [0.1, 0.2]}})
    text = make_report([one, two], "markdown")
    assert "digits" in text
    assert "svhn" in text
    assert "cannot be made" not in text


def test_the_same_trial_twice_is_told(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", 0, [0.5]), full_trial("fafi", 0, [0.6])])
    text = make_report([run], "markdown")
    assert "are the same trial; only the second one is shown" in text
    assert "50.0" in text


def test_missing_libraries_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = write_run(tmp_path / "run", [full_trial("fafi", 0, [0.5])])
    for library in ("jinja2", "matplotlib"):
        with monkeypatch.context() as patched:
            patched.setitem(sys.modules, library, None)
            with pytest.raises(AccordError, match=r"pip install 'accord\[report\]'"):
                make_report([run], "html")
            assert json.dumps(make_report([run], "latex"))
