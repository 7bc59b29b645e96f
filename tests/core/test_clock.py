"""Recorded seconds are those of the processor: waiting and other programs cost nothing."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.client.base import Client
from accord.client.make import make_client
from accord.client.training import Training
from accord.core.clock import Stopwatch
from accord.federation.tasks.answer import work
from accord.federation.tasks.base import Task, perform
from accord.fusion.base import Scene
from accord.fusion.ridge import RidgeFusion
from accord.messages import Upload
from accord.methods.averaging import Averaging
from accord.record.folders import RoundFolder
from accord.record.record import Record
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


def test_the_seconds_of_epochs_before_an_interruption_stay(tmp_path: Path) -> None:
    """They are in a file beside the upload, and the upload itself holds none."""
    data, briefing = images_of([0, 1] * 8), brief_for("fafi", epochs=2, checkpoints=[1])
    folder = RoundFolder(tmp_path, 1)

    def slow(news: Raw) -> None:
        if news.get("restored"):
            raise KeyboardInterrupt

    first = Training(data, briefing, "0")
    first.run_epoch(lambda _: busy(PAUSE))
    first.upload().save(folder.upload("0", 1, last=False))
    folder.write_seconds("0", first.seconds)
    state = first.state()
    state.save(folder.state("0"))
    with pytest.raises(KeyboardInterrupt):
        work(Training(data, briefing, "0"), folder, slow)
    work(Training(data, briefing, "0"), folder, lambda _: None)
    told = folder.read_seconds("0")
    assert told[1] == first.seconds[1] >= PAUSE
    assert 0 < told[2] < PAUSE
    upload = Upload.load(folder.upload("0", 2, last=True))
    for header in (upload.header, state.header):
        assert all("seconds" not in event for event in header.telemetry)
    for damage in ("{", "[]", '{"1": -1, "2": "x"}', '{"1": NaN}', '{"1": 1e400}'):
        folder.seconds("0").write_text(damage)
        assert folder.read_seconds("0") == {}


def test_the_seconds_of_a_merge_are_cpu_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    merge = RidgeFusion.merge

    def slow(self: RidgeFusion, scene: Scene) -> Any:
        time.sleep(PAUSE)
        busy(PAUSE / 4)
        yield from merge(self, scene)

    monkeypatch.setattr(RidgeFusion, "merge", slow)
    accord.run(closed_study(), out=tmp_path, workers=1, quiet=True)
    (trial,) = Record(tmp_path).trials()
    solution = trial.measures()["checkpoints"][0]["fusions"]["ridge"]["solution"]
    assert PAUSE / 4 < solution["seconds"] < PAUSE


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
