"""Killed at any point and started again, a study ends as if it had never been killed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import yaml

import accord
from accord.client.telemetry import Event
from accord.client.training import Training
from records import assert_same_uploads, timeless

Raw = dict[str, Any]


@pytest.fixture
def study(study: Raw) -> Raw:
    study["data"] = {"name": "digits", "train_limit": 60, "test_limit": 20}
    study["budget"] = {"epochs": 4, "batch": 16, "checkpoints": [2, 4], "schedule": "cosine"}
    study["recipes"] = ["etf-stabilised", "ce-ensemble", "fedavg-once"]
    study["shift"] = {"colour": 0.5, "noise": 0.1, "labels": 0.1}
    return study


class PowerCut(BaseException):
    """Not an Exception: nothing may catch it."""


def test_cut_off_at_any_write(study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process ends just before or just after the n-th file appears."""
    writes, when = 0, "after"
    cut_at = float("inf")
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        nonlocal writes
        writes += 1
        if when == "before" and writes >= cut_at:
            raise PowerCut
        moved = real(self, target)
        if writes >= cut_at:
            raise PowerCut
        return moved

    monkeypatch.setattr(Path, "replace", replace)
    accord.run(study, out=tmp_path / "whole", workers=1, quiet=True)
    total = writes
    assert total > 20
    for share, when in ((0.03, "before"), (0.5, "after"), (0.7, "before"), (0.97, "after")):  # noqa: B007
        out = tmp_path / str(share)
        writes, cut_at = 0, round(share * total)
        with pytest.raises(PowerCut):
            accord.run(study, out=out, workers=1, quiet=True)
        cut_at = float("inf")
        accord.run(study, out=out, workers=1, quiet=True)
        assert timeless(out) == timeless(tmp_path / "whole")
        assert_same_uploads(out, tmp_path / "whole")


def test_sigkill_while_clients_train(study: Raw, tmp_path: Path) -> None:
    study["budget"]["epochs"], study["budget"]["checkpoints"] = 8, [3, 6]
    study["recipes"], study["rounds"] = ["fafi", "scaffold"], {"count": 2}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    command = [sys.executable, "-m", "accord.cli", "run", str(path), "--workers", "2", "--quiet"]
    process = subprocess.Popen(
        [*command, "--out", str(tmp_path / "killed")], stdout=subprocess.DEVNULL
    )
    # Not before a client has kept its state, or only the start of Python would be killed.
    deadline = time.monotonic() + 60
    while not list((tmp_path / "killed").glob("trials/**/state/*.safetensors")):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert process.poll() is None
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    for name in ("killed", "whole"):
        accord.run(study, out=tmp_path / name, workers=1, quiet=True)
    assert timeless(tmp_path / "killed") == timeless(tmp_path / "whole")
    assert_same_uploads(tmp_path / "killed", tmp_path / "whole")


def test_a_client_goes_on_from_its_state_instead_of_starting_again(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study["recipes"] = ["ce-ensemble"]
    power, epochs = False, []
    real = Training.run_epoch

    def counted(self: Training, tell: Any = None) -> Event:
        if self.name == "1" and self.epoch == 2 and not power:
            raise PowerCut
        epochs.append((self.name, self.epoch))
        return real(self, tell)

    monkeypatch.setattr(Training, "run_epoch", counted)
    with pytest.raises(PowerCut):
        accord.run(study, out=tmp_path, workers=1, quiet=True)
    power, before = True, list(epochs)
    epochs.clear()
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    # Client 1 had a checkpoint after 2 of 4 epochs; no epoch of anyone is trained twice.
    assert ("1", 1) in before
    assert sorted(before + epochs) == [(c, e) for c in "012" for e in range(4)]


def interrupted(study: Raw, out: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run cut off when client 1 had its first checkpoint behind it."""
    real = Training.run_epoch

    def cut(self: Training, tell: Any = None) -> Event:
        if self.name == "1" and self.epoch == 3:
            raise PowerCut
        return real(self, tell)

    with monkeypatch.context() as patch:
        patch.setattr(Training, "run_epoch", cut)
        with pytest.raises(PowerCut):
            accord.run(study, out=out, workers=1, quiet=True)
    assert list(out.glob("trials/*/state/client-1.safetensors"))


def test_what_an_interrupted_client_lost_is_made_again(
    study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study["recipes"] = ["ce-ensemble"]
    accord.run(study, out=tmp_path / "whole", workers=1, quiet=True)
    interrupted(study, tmp_path / "cut", monkeypatch)
    for harm in ("state cut", "state gone", "checkpoint gone"):
        out = shutil.copytree(tmp_path / "cut", tmp_path / harm)
        (state,) = out.glob("trials/*/state/client-1.safetensors")
        if harm == "state cut":
            state.write_bytes(state.read_bytes()[:-100])
        elif harm == "state gone":
            state.unlink()
        else:
            next(out.glob("trials/*/uploads/client-1@2.safetensors")).unlink()
        accord.run(study, out=out, workers=1, quiet=True)
        assert timeless(out) == timeless(tmp_path / "whole"), harm
        assert_same_uploads(out, tmp_path / "whole")
