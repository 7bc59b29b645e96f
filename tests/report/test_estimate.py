"""What a study will cost is said before it costs anything, the bank and its teacher included."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import accord
from accord.record.record import Record
from accord.report.costs import Cost
from accord.report.estimate import estimate

Raw = dict[str, Any]


@pytest.fixture
def study(study: Raw) -> Raw:
    study["data"]["public"] = 0.2
    bank = {"teacher_epochs": 1, "size": 25}
    study["recipes"] = [
        "fafi",
        {"use": "bank-two-stage", "bank": bank, "as": "staged"},
    ]
    return study


def costs(study: Raw, out: Path) -> dict[str, Cost]:
    """By what stands before the first dash of a name."""
    found = estimate(accord.load_study(study), Record(out), None, 1).costs
    named = {cost.name.split("-")[0]: cost for cost in found}
    assert len(named) == len(found)
    return named


def test_downloads_are_those_of_the_run(study: Raw, tmp_path: Path) -> None:
    """To the byte: the briefing that is timed is as large as the one that will be sent."""
    before = costs(study, tmp_path)
    assert set(before) == {"teacher", "fafi", "staged"}
    assert not list(tmp_path.iterdir())
    assert list(map(len, before["teacher"].train_seconds)) == [1]
    assert before["teacher"].sizes == [30]
    assert before["teacher"].upload_bytes == before["teacher"].download_bytes == 0
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    for trial in Record(tmp_path).trials():
        info = trial.info()
        assert before[info["recipe"]].download_bytes == info["download_bytes"]
    bank = 25 * (64 * 4 + 8)
    assert before["staged"].download_bytes >= before["fafi"].download_bytes + 3 * bank
    after = costs(study, tmp_path)
    assert set(after) == {"fafi", "staged"}  # no teacher has anything left to do
    assert after["staged"].train_seconds == []


def test_a_teacher_that_has_trained_or_need_not_costs_no_training(
    study: Raw, tmp_path: Path
) -> None:
    accord.run({**study, "recipes": ["fafi"]}, out=tmp_path / "one", workers=1, quiet=True)
    (source,) = Record(tmp_path / "one").trials()
    bank = {"source": str(source.path)}
    study["recipes"] = [{"use": "public-negatives", "bank": bank, "as": "given"}]
    found = costs(study, tmp_path / "two")
    assert found["teacher"].train_seconds == []
    assert found["teacher"].note == "an earlier trial's nets"
    assert list(map(len, found["given"].train_seconds)) == [3]
