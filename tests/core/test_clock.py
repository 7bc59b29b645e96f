"""Recorded seconds are those of the processor: waiting and other programs cost nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.client.base import Client
from accord.client.make import make_client
from accord.client.training import Training
from accord.closed_form.sums import Sums
from accord.core.clock import Stopwatch
from accord.federation.tasks.base import Task, perform
from accord.fusion.base import Scene
from accord.fusion.ridge import RidgeFusion
from accord.methods.averaging import Averaging
from accord.record.record import Record
from closed_forms import made_up, sums_by_hand
from closed_run import study as closed_study
from tests_support import brief_for, images_of

PAUSE = 0.4  # far above the cost of any work here
Raw = dict[str, Any]


def busy(seconds: float) -> None:
    """Computes until this thread has used so much CPU time."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def test_a_stopwatch_counts_the_work_of_its_thread_and_no_waiting() -> None:
    spent = Stopwatch()
    time.sleep(PAUSE)
    other = threading.Thread(target=busy, args=(PAUSE,))
    other.start()
    other.join()
    assert spent.seconds < PAUSE / 2
    busy(PAUSE)
    assert PAUSE <= spent.seconds < 1.5 * PAUSE


def test_on_a_gpu_the_time_that_passes_counts() -> None:
    spent = Stopwatch("cuda")
    time.sleep(0.05)
    assert spent.seconds >= 0.05


def summing() -> Client:
    """A client of a closed form."""
    from accord.federation.briefing import rehearse
    from accord.federation.plan import Plan
    from accord.study.study import load_study

    checked = load_study(closed_study())
    trial = checked.trials()[0]
    _, allocation = Plan(checked, None, print).allocation(trial)
    return make_client(allocation.client(0), rehearse(trial, allocation), "0")


def test_the_seconds_of_an_epoch_are_cpu_time() -> None:
    """`tell` is called within the epoch: what it does counts, and that it waits does not."""
    for make in (lambda: Training(images_of([0, 1] * 8), brief_for("fafi"), "0"), summing):
        waited = make().run_epoch(lambda _: time.sleep(PAUSE))["seconds"]
        worked = make().run_epoch(lambda _: busy(PAUSE))["seconds"]
        assert 0 < waited < PAUSE < worked


def test_the_seconds_of_epochs_before_an_interruption_stay() -> None:
    data, briefing = images_of([0, 1] * 8), brief_for("fafi", epochs=2)
    first = Training(data, briefing, "0")
    first.run_epoch(lambda _: busy(PAUSE))
    state = first.state()
    second = Training(data, briefing, "0")
    second.restore(state)
    second.run_epoch()
    told = [event["seconds"] for event in second.upload().header.telemetry]
    assert told[0] == first.telemetry[0]["seconds"] >= PAUSE
    assert 0 < told[1] < PAUSE


def test_the_seconds_of_a_ridge_are_cpu_time() -> None:
    total: Sums = sums_by_hand(made_up(0, 60, 5, 3), 3)
    client = summing()

    def seconds(tell: Callable[[float], None]) -> float:
        scene = Scene(
            uploads=None,  # type: ignore[arg-type]
            briefing=client.briefing,
            public=client.data,
            total=total,
            tell=tell,
        )
        (upload,) = RidgeFusion().merge(scene)
        return float(upload.header.telemetry[0]["seconds"])

    # λ is tried at least ten times.
    waited, worked = seconds(lambda _: time.sleep(PAUSE / 10)), seconds(lambda _: busy(PAUSE / 10))
    assert waited < PAUSE < worked


def test_the_server_and_every_job_are_counted_in_cpu_time(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """server_seconds of round.json, and core_seconds of trial.json, over several commands."""
    merged = Averaging.merged

    def slow(self: Averaging, scene: Scene) -> Any:
        time.sleep(PAUSE)
        return merged(self, scene)

    monkeypatch.setattr(Averaging, "merged", slow)
    study |= {"recipes": ["fedavg"], "rounds": {"count": 2}, "budget": {"epochs": 1}}
    began = time.process_time()
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    used = time.process_time() - began
    (trial,) = Record(tmp_path).trials()
    info = trial.info()
    assert 0 < info["rounds"][0]["server_seconds"] < PAUSE
    assert info["seconds"] + info["rounds"][0]["server_seconds"] < info["core_seconds"] < used
    accord.fuse(tmp_path, ["outputs"], workers=1, quiet=True)
    later = trial.info()["core_seconds"]
    assert info["core_seconds"] < later < info["core_seconds"] + time.process_time() - began - used
    accord.run(study, out=tmp_path, workers=1, quiet=True)  # everything is done already
    assert trial.info()["core_seconds"] == later


class Waiting(Task):
    """A job that waits."""

    def perform(self, record: Record, tell: Any) -> Raw:  # noqa: ARG002
        time.sleep(PAUSE)
        return {}


def test_a_job_that_waits_costs_nothing(tmp_path: Path) -> None:
    told = perform(Waiting(place="trials/x", allocation="x"), Record(tmp_path), print)
    assert told["core_seconds"] < PAUSE / 2
