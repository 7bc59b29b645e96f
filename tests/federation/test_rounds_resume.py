"""Killed at any point of any round and started again, a trial ends with the same bits."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.messages import ServerState, Upload
from records import timeless
from tests_support import same

Raw = dict[str, Any]
STUDY: Raw = {
    "name": "interrupted",
    "data": {"name": "digits", "train_limit": 20, "test_limit": 10},
    "partition": {"scheme": "iid", "clients": 3},
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 2, "batch": 16, "checkpoints": [1, 2]},
    "rounds": {"count": 2, "fraction": 0.7},
    "recipes": ["scaffold"],
    "references": False,
}

# Clients and server train adapters, and the teacher is trained on.
ENRICHED: Raw = {
    **STUDY,
    "data": {"name": "digits", "train_limit": 30, "test_limit": 10, "public": 0.3},
    "budget": {"epochs": 2, "batch": 16},
    "recipes": ["mergenet-pseudo", "mergenet-client"],
    "mergenet": {"start_round": 1, "d_attention": 8, "steps": 2, "batch": 4},
    "teacher": {"epochs": 1, "trainable": True},
}


class PowerCut(BaseException):
    """Ends a run at once, as a kill does: no code may handle it."""


def run(out: Path, study: Raw = STUDY) -> None:
    accord.run(study, out=out, workers=1, quiet=True)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    run(out)
    return out


def cut_at(number: int, out: Path, monkeypatch: pytest.MonkeyPatch, study: Raw = STUDY) -> bool:
    """Runs until a file is to be written for the `number`-th time; whether it got that far."""
    real, written = os.fsync, 0

    def counted(descriptor: int) -> None:
        nonlocal written
        written += 1
        if written == number:
            raise PowerCut
        real(descriptor)

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", counted)
        try:
            run(out, study)
        except PowerCut:
            return True
    return False


def assert_same_record(one: Path, two: Path, trials: int = 1) -> None:
    assert timeless(one) == timeless(two)
    uploads = sorted(one.glob("trials/**/uploads/*.safetensors"))
    assert [p.relative_to(one) for p in uploads] == [
        p.relative_to(two) for p in sorted(two.glob("trials/**/uploads/*.safetensors"))
    ]
    assert len(uploads) == 2 * trials  # of the last round, which asks two of three clients
    for path in uploads:
        other = two / path.relative_to(one)
        assert same(Upload.load(path).tensors, Upload.load(other).tensors)


def test_a_power_cut_at_any_write_changes_no_bit(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every fifth write, from the second on."""
    number = 2
    while cut_at(number, tmp_path / str(number), monkeypatch):
        run(tmp_path / str(number))
        assert_same_record(tmp_path / str(number), whole)
        number += 5
    assert number > 25  # so many files are written at least


def test_a_run_that_is_cut_again_and_again_still_ends(
    whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cuts = 0
    while cut_at(12, tmp_path, monkeypatch):
        cuts += 1
        assert cuts < 100
    assert cuts > 1
    assert_same_record(tmp_path, whole)


def test_power_cuts_of_mergenet_change_no_bit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some of the writes, with the servers' final states."""
    run(tmp_path / "whole", ENRICHED)
    number = 5
    while cut_at(number, tmp_path / str(number), monkeypatch, ENRICHED):
        run(tmp_path / str(number), ENRICHED)
        assert_same_record(tmp_path / str(number), tmp_path / "whole", trials=2)
        states = sorted((tmp_path / str(number)).rglob("server.safetensors"))
        assert len(states) == 3  # at the start and at the end of the last round, or at its start
        for path in states:
            other = tmp_path / "whole" / path.relative_to(tmp_path / str(number))
            assert same(ServerState.load(path).tensors, ServerState.load(other).tensors)
        number += 15
    assert number > 35  # so many files are written at least
