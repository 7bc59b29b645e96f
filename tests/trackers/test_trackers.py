"""Trackers, with the real packages: what they write, once, and that they never stop a study."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.core.errors import AccordError
from accord.record.record import Record
from accord.report.progress import Silent
from accord.trackers import Tracker, trackers
from accord.trackers.course import Value, course_of
from accord.trackers.mlflow import MOST_CLIENTS, _metrics
from accord.trackers.tracking import Tracking
from records import timeless

Raw = dict[str, Any]


def run(study: Raw, out: Path, *track: str) -> accord.Results:
    return accord.run({**study, "track": list(track)}, out=out, workers=1, quiet=True)


def points(folder: Path) -> dict[str, Any]:
    """What TensorBoard itself reads from a folder."""
    reading = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    found = reading.EventAccumulator(str(folder))
    found.Reload()
    return {tag: [(e.step, e.value) for e in found.Scalars(tag)] for tag in found.Tags()["scalars"]}


def test_tensorboard_has_every_point_once(study: Raw, tmp_path: Path) -> None:
    """Turning it on later, repeating it and a half-written copy all lead to the same points."""
    pytest.importorskip("tensorboard", reason="needs accord[tensorboard]")
    run(study, tmp_path)
    before = timeless(tmp_path)
    (trial,) = Record(tmp_path).trials()
    uploads = trial.round(1).upload("0", 0, last=True).stat().st_mtime_ns
    (tmp_path / "tensorboard" / trial.id).mkdir(parents=True)  # of a run that was killed
    for _ in range(2):
        (row,) = run(study, tmp_path, "tensorboard").rows
    folder = tmp_path / "tensorboard" / trial.id
    assert points(folder)["accuracy/features"] == [(2, pytest.approx(row["accuracy"]))]
    events = [event for event in trial.read_events() if event["client"] == "1"]
    losses = [(event["epoch"], pytest.approx(event["loss_local"])) for event in events]
    assert points(folder / "client-1")["loss_local"] == losses
    assert len(losses) == 2
    assert timeless(tmp_path) == before
    assert trial.round(1).upload("0", 0, last=True).stat().st_mtime_ns == uploads
    assert [path.id for path in Record(tmp_path).trials()] == [trial.id]


def test_mlflow_has_one_run_per_trial_and_uses_no_network(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow", reason="needs accord[mlflow]")
    from mlflow.tracking import MlflowClient

    def refuse(*_: Any) -> None:
        raise AssertionError("no network by default")

    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    monkeypatch.setattr(socket.socket, "connect", refuse)
    for _ in range(2):
        (row,) = run(study, tmp_path, "mlflow").rows
    client = MlflowClient(tracking_uri=f"sqlite:///{tmp_path / 'mlflow' / 'mlflow.db'}")
    experiment = client.get_experiment_by_name("tiny")
    assert experiment is not None
    (found,) = client.search_runs([experiment.experiment_id])
    assert found.info.status == "FINISHED"
    assert found.data.params["budget.epochs"] == "2"
    assert {key: found.data.tags[key] for key in ("recipe", "seed", "alpha")} == {
        "recipe": "fafi", "seed": "0", "alpha": "0.5",
    }  # fmt: skip
    assert found.data.metrics["accuracy/features"] == pytest.approx(row["accuracy"])
    history = client.get_metric_history(found.info.run_id, "client-0/loss_local")
    assert [metric.step for metric in history] == [1, 2]


def test_a_failing_tracker_changes_nothing(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It gets one trial, one line tells why it failed, and the study ends as without it."""
    told: list[str] = []
    asked: list[str] = []

    class Broken(Tracker):
        name, needs = "broken", ()

        def write(self, course: Any) -> None:
            asked.append(course.trial)
            raise OSError("no space left\non the disk")

    monkeypatch.setitem(trackers._parts, "broken", Broken)
    watcher = Silent()
    monkeypatch.setattr(watcher, "tell", told.append)
    monkeypatch.setattr("accord.api.Silent", lambda: watcher)
    study["seeds"] = [0, 1]
    assert not run(study, tmp_path / "a", "broken").failures
    run(study, tmp_path / "b")
    assert timeless(tmp_path / "a") == timeless(tmp_path / "b")
    assert len(asked) == 1
    (line,) = [one for one in told if one.startswith("track:")]
    assert "broken failed" in line
    assert "no space left on the disk" in line


def test_mistakes_are_explained_before_anything_runs(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(AccordError, match="did you mean 'tensorboard'"):
        run(study, tmp_path / "r", "tensorbord")
    monkeypatch.setattr("accord.trackers.base.find_spec", lambda _: None)
    for name in trackers.names():
        with pytest.raises(AccordError, match=rf"pip install 'accord\[{name}\]'"):
            Tracking([name], Record(tmp_path / "r"), print)
    assert not (tmp_path / "r").exists()


def test_a_course_has_numbers_only_and_the_last_event_of_an_epoch(
    study: Raw, tmp_path: Path
) -> None:
    run(study, tmp_path)
    (trial,) = Record(tmp_path).trials()
    for loss in (5.0, 7.0):
        trial.append_event(
            {"client": "0", "round": 1, "epoch": 9, "loss": loss, "sigma": None, "lr": float("nan")}
        )
    late = [value for value in course_of(trial).values if value.epoch == 9]
    assert late == [Value("0", "loss", 9, 7.0)]


def test_many_clients_are_written_as_their_mean() -> None:
    values = [Value(str(i), "loss", 1, float(i)) for i in range(MOST_CLIENTS + 1)]
    assert list(_metrics(values)) == [("clients/loss", 1, MOST_CLIENTS / 2)]
    few = {name: value for name, _, value in _metrics(values[:2])}
    assert few == {"client-0/loss": 0.0, "client-1/loss": 1.0, "clients/loss": 0.5}
    assert "MLFLOW_TRACKING_URI" not in os.environ
