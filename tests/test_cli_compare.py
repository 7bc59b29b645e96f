"""The command `accord compare` as a person or a script meets it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from accord.cli import main
from accord.record.folders import TrialFolder
from accord.record.record import Record
from written_runs import over_rounds, trial, write_run


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Two recipes with two seeds, in the folder `runs/r` of the current folder."""
    monkeypatch.chdir(tmp_path)
    trials = [
        trial("fedavg", 0, over_rounds(0.4, 0.6)),
        trial("fedavg", 1, over_rounds(0.4, 0.7)),
        trial("fedprox", 0, over_rounds(0.6, 0.65)),
        trial("fedprox", 1, over_rounds(0.4, 0.74)),
    ]
    write_run(tmp_path / "runs" / "r", trials)
    return "runs/r"


class Command:
    """The command without a process of its own."""

    def __init__(self, patch: pytest.MonkeyPatch, said: pytest.CaptureFixture[str]) -> None:
        self.patch, self.said = patch, said

    def __call__(self, *words: str | Path, code: int = 0) -> str:
        """The output, or the message of an error."""
        self.patch.setattr(sys, "argv", ["accord", "compare", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        out, error = self.said.readouterr()
        assert int(ended.value.code or 0) == code, error
        assert "Traceback" not in error
        return out if code == 0 else " ".join(error.replace("│", " ").split())


@pytest.fixture
def compare(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    return Command(monkeypatch, capsys)


def test_plain_text_in_a_pipe_without_loading_torch(run: str) -> None:
    code = "import sys; from accord.cli import app; app(standalone_mode=False); "
    code += "sys.exit('torch' in sys.modules)"
    words = [sys.executable, "-c", code, "compare", run, "--baseline", "fedavg"]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "TERM": "xterm"}
    )
    assert done.returncode == 0, done.stderr
    assert "\x1b" not in done.stdout
    assert not any(line.endswith(" ") for line in done.stdout.splitlines())
    (line,) = (line for line in done.stdout.splitlines() if "fedprox" in line)
    # 65 and 74 against 60 and 70: differences of 5 and 4 points.
    assert line.endswith("+4.5 ± 0.7")
    assert "69.5 ± 6.4" in line
    for heading in ("to 60 %", "to 75 %", "stable %", "MB down", "vs fedavg"):
        assert heading in done.stdout


def test_thresholds_and_json(run: str, compare: Command) -> None:
    text = compare(run, "--baseline", "fedavg", "--threshold", "70", "--threshold", "62.5")
    assert text.index("to 62.5 %") < text.index("to 70 %")
    assert "to 60 %" not in text
    content = json.loads(compare(run, "--baseline", "fedavg", "--json", "--threshold", "62.5"))
    assert content["thresholds"] == [0.625]
    fedprox, fedavg = content["lines"]
    assert (fedavg["is_baseline"], fedprox["is_baseline"]) == (True, False)
    assert fedprox["difference"]["seeds"] == {"0": 0.65 - 0.6, "1": 0.74 - 0.7}
    assert fedprox["seeds"]["0"]["reached"] == {"62.5": 2}
    assert fedavg["reached"]["62.5"] == {"mean": 2, "deviation": None, "count": 1}
    assert fedavg["seeds"]["1"]["gap"] == 0.9 - 0.7
    one = json.loads(compare(run, "--baseline", "fedavg", "--trial", "-1-", "--json"))
    assert [list(line["seeds"]) for line in one["lines"]] == [["1"], ["1"]]


def test_mistakes_give_exit_code_2(run: str, compare: Command, tmp_path: Path) -> None:
    for wrong in ("0", "-3", "100.5", "nan", "inf"):
        error = compare(run, "--baseline", "fedavg", f"--threshold={wrong}", code=2)
        assert "--threshold: expected an accuracy in percent" in error
    assert "not a valid float" in compare(run, "--baseline", "a", "--threshold", "x", code=2)
    assert "baseline" in compare(run, code=2)
    assert "RUN" in compare("--baseline", "fedavg", code=2)
    error = compare(run, "--baseline", "fedavgg", code=2)
    assert "unknown baseline 'fedavgg'; did you mean 'fedavg'?" in error
    assert "recipes are: fedavg, fedprox" in error
    missing = compare("runs/q", run, "--baseline", "fedavg", code=2)
    assert "runs/q is not a run directory" in missing
    assert "In runs/ there are: r." in missing
    (tmp_path / "folder").mkdir()
    assert "not a run directory" in compare("folder", "--baseline", "fedavg", code=2)
    write_run(tmp_path / "empty", [])
    error = compare("empty", run, "--baseline", "fedavg", code=2)
    assert "empty has no results to compare" in error
    error = compare(run, "--baseline", "fedavg", "--trial", "other", code=2)
    assert "no finished trial with 'other' in its name" in error
    damaged = tmp_path / "runs/r/trials/fedavg-0-00/measures.json"
    damaged.write_text('{"checkpoints": [{}]}')
    assert "is damaged" in compare(run, "--baseline", "fedavg", code=2)


def test_a_real_run_has_the_same_summary_in_trial_json(
    study: dict[str, Any], tmp_path: Path, compare: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    study |= {"recipes": ["fedavg", "central"], "rounds": {"count": 2}, "budget": {"epochs": 1}}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    out = tmp_path / "r"
    words = ["run", tmp_path / "study.yaml", "--out", out, "--workers", "1", "--quiet"]
    monkeypatch.setattr(sys, "argv", ["accord", *map(str, words)])
    with pytest.raises(SystemExit):
        main()
    compare.said.readouterr()
    trials: list[TrialFolder] = Record(out).trials()
    units = {one.info()["recipe"]: one.info()["summary"] for one in trials}
    assert units["fedavg"]["average"]["unit"] == "round"
    assert units["central"]["outputs"]["unit"] == "epoch"
    content = json.loads(compare(out, "--baseline", "central", "--json"))
    for line in content["lines"]:
        written = units[line["recipe"]][line["fusion"]]
        assert {key: line["seeds"]["0"][key] for key in written} == written
        assert line["difference"]["count"] == 1
        assert line["gap"]["mean"] is not None
