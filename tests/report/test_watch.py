"""accord watch: what it reads from a record, when it ends, and that it disturbs nobody."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import accord
from accord.core.files import locked
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.live import watch as watching
from accord.report.live.asked import read_asked
from accord.report.live.epochs import Epochs, bars_of, share_done
from accord.report.live.picture import TrialLine
from accord.report.live.watched import Watched
from accord.study.study import check_study
from command_line import Here, Refused
from records import timeless
from written_runs import over_rounds, trial, write_run

Raw = dict[str, Any]


@pytest.fixture
def made(study: Raw, tmp_path: Path) -> Path:
    accord.run({**study, "seeds": [0, 1]}, out=tmp_path / "r", workers=1, quiet=True)
    return tmp_path / "r"


def change_status(run: Path, status: str) -> TrialFolder:
    """The first trial gets another status."""
    folder = TrialFolder(sorted((run / "trials").iterdir())[0])
    folder.write_info({**folder.info(), "status": status, "failures": ["client 2: no memory"]})
    return folder


def test_a_finished_study_ends_the_watching(made: Path, here: Here) -> None:
    done = here("watch", made)
    assert done.code == 0
    assert "2 of 2 trials finished" in done.out
    assert "fafi (α 0.5), features: accuracy" in done.out
    assert done.out.endswith("The study is finished.\n")
    assert "\x1b" not in done.out
    change_status(made, "failed")
    done = here("watch", made)
    assert done.code == 1
    assert "failed: fafi (α 0.5, seed 0): client 2: no memory" in done.out


def test_an_interrupted_study_is_said_to_be_so(made: Path, here: Here) -> None:
    folder = change_status(made, "running")
    for path in made.rglob("*"):
        os.utime(path, (1e9, 1e9))  # nothing has changed for years
    done = here("watch", made)
    assert done.code == 1
    assert "1 of 2 trials finished, 1 interrupted" in done.out
    assert f"accord run {made / 'study.yaml'} --out {made}" in done.out
    assert here("watch", made, "--once").code == 0
    (folder.path / "measures.json").write_text("{half")
    (folder.path.parent / "odd-s0-123").mkdir()
    (folder.path.parent / "odd-s0-123" / "trial.json").write_text("[]")
    done = here("watch", made, "--once")
    assert done.code == 0
    assert "cannot be read" in done.out
    assert "1 of 2 trials finished" in done.out


def test_what_is_no_record_is_refused(tmp_path: Path, refused: Refused) -> None:
    refused("watch", tmp_path / "nothing", said="no such folder")
    refused("watch", tmp_path, said="is not a run directory")


def test_a_study_that_cannot_be_read_has_an_unknown_number_of_trials(tmp_path: Path) -> None:
    run = write_run(tmp_path / "r", [trial("fedavg", 0, over_rounds(0.2, 0.4), status="running")])
    picture = Watched(run).look()
    assert picture.asked is None
    assert "an unknown number waiting" in picture.headline()
    assert [one.so_far() for one in picture.standings] == ["40.0 at epoch 2"]
    assert any("unknown" in note for note in picture.notes)


def test_a_writer_is_followed_until_it_ends(made: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A block per change, and none if nothing changed; the end of the writer is seen at once."""
    folder = change_status(made, "running")
    looks = 0

    def wait(_: float) -> None:
        nonlocal looks
        looks += 1
        if looks == 2:
            folder.append_event({"client": "0", "round": 1, "epoch": 3})
            holder.__exit__(None, None, None)

    folder.events.unlink()
    holder = locked(made, "refused")
    holder.__enter__()
    assert watching.watch(made, every=9.0, wait=wait) == 1
    said = capsys.readouterr().out
    assert looks == 2
    assert said.count("1 of 2 trials finished") == 2
    assert "1 running" in said.split("\n\n")[0]
    assert "1 interrupted" in said.split("\n\n")[1]
    assert "No process is writing this record, and the study is not finished." in said


def test_the_remaining_time_comes_from_the_pace(
    made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two equal trials: after 40 s one is done and a half of the other; 13 s are left."""
    folder = change_status(made, "running")
    events = [e for e in folder.read_events() if e["epoch"] == 1]
    folder.write_events(events)
    began = time.time()
    os.utime(made / "study.yaml", (began, began))
    for path in made.glob("trials/*/trial.json"):
        os.utime(path, (began + 1, began + 1))
    watched = Watched(made)
    monkeypatch.setattr("accord.report.live.watched.time.time", lambda: began + 40)
    with locked(made, "refused"):
        picture = watched.look()
    assert picture.share == pytest.approx(0.75)
    assert "40 s so far, about 13 s left" in picture.timing
    assert {(bar.what, bar.note) for bar in picture.bars} == {
        (f"client {name}", "epoch 1 of 2") for name in "012"
    }


def test_only_what_changed_is_read_again(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[str] = []
    info = TrialFolder.info

    def counted(one: TrialFolder) -> dict[str, Any]:
        read.append(one.id)
        return info(one)

    monkeypatch.setattr(TrialFolder, "info", counted)
    watched = Watched(made)
    watched.look()
    assert len(read) == 2
    watched.look()
    assert len(read) == 2
    folder = change_status(made, "failed")
    read.clear()
    assert watched.look().count("failed") == 1
    assert read == [folder.id]


def test_epochs_are_read_as_they_arrive(tmp_path: Path) -> None:
    folder = TrialFolder(tmp_path)
    epochs = Epochs(folder.events)
    assert epochs.look() == 0.0
    folder.append_event({"client": "a", "epoch": 1})
    with folder.events.open("a") as file:
        file.write('{"client": "a", "ep')
    epochs.look()
    assert epochs.last == {"a": 1}  # the last line is incomplete
    with folder.events.open("a") as file:
        file.write('och": 2}\nnonsense\n')
    os.utime(folder.events, (1, 1))
    epochs.look()
    assert (epochs.last, epochs.damaged) == ({"a": 2}, 1)
    folder.write_events([{"client": "b", "epoch": 4}])  # written again, in order
    epochs.look()
    assert (epochs.last, epochs.damaged) == ({"b": 4}, 0)


def test_a_client_counts_as_much_as_its_images() -> None:
    config = {"budget": {"epochs": 5}, "rounds": {"count": 2}}
    info = {"config": config, "client_files": {"a": "", "b": ""}, "label_counts": [[30], [10]]}
    assert share_done(info, {"a": 5}) == pytest.approx(5 / 10 * 30 / 40)
    line = TrialLine("t", "t", "running")
    assert [bar.share for bar in bars_of(line, info, {"a": 5, "b": 10})] == [0.5]
    assert bars_of(line, info, {"a": 10, "b": 10})[0].what == "server"


def test_in_turns_only_the_client_that_trains_has_a_bar() -> None:
    """4 rounds of 2 epochs, in each of which one of two clients trains."""
    config = {"budget": {"epochs": 2}, "rounds": {"count": 4}}
    info = {"config": config, "asked": 1, "client_files": {"a": "", "b": ""}}
    line = TrialLine("t", "t", "running")
    for last, share, bars in (
        ({"a": 1}, 1 / 8, ["client a"]),
        ({"a": 2, "b": 3}, 3 / 8, ["client b"]),
        ({"a": 5, "b": 4}, 5 / 8, ["client a"]),
        ({"a": 6, "b": 8}, 1.0, ["server"]),
    ):
        assert share_done(info, last) == pytest.approx(share)
        assert [bar.what for bar in bars_of(line, info, last)] == bars


def test_a_trial_in_turns_is_as_much_work_as_its_visits(study: Raw, tmp_path: Path) -> None:
    """Four visits of three epochs to every client, whatever the number of rounds."""
    for clients in (2, 10):
        out = tmp_path / str(clients)
        (out / "trials").mkdir(parents=True)
        asked = {**study, "partition": {"scheme": "iid", "clients": clients}}
        for count in (None, 4 * clients):
            asked |= {"recipes": ["turns"], "references": False, "rounds": {"count": count}}
            (out / "study.yaml").write_text(yaml.safe_dump(check_study(asked, out).resolved))
            assert read_asked(Record(out)).work == {"turns": 12.0}


def test_a_real_run_is_watched_from_another_process(study: Raw, tmp_path: Path) -> None:
    """The watcher sees it run and ends with it; the run has the results of an unwatched one."""
    study["budget"]["epochs"] = 4
    study["seeds"] = [0, 1]
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(study))
    words = [sys.executable, "-m", "accord"]
    out = tmp_path / "r"
    run = [*words, "run", str(tmp_path / "s.yaml"), "--out", str(out), "--workers", "1"]
    told = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with subprocess.Popen(run, **told) as running:  # type: ignore[call-overload]
        assert running.stdout.readline() == "trials to run: 2\n"  # the record is there now
        picture = Watched(out).look()
        done = subprocess.run(
            [*words, "watch", str(out), "--every", "0.1"], capture_output=True, text=True
        )
        running.communicate()
    assert running.returncode == 0
    assert picture.written
    assert picture.asked == 2
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith("The study is finished.\n")
    accord.run(study, out=tmp_path / "alone", workers=1, quiet=True)
    assert timeless(out) == timeless(tmp_path / "alone")
    assert json.loads((out / "data.json").read_text())
