"""Runs of a small closed form on digits, for tests of what users do with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

import accord
from accord.client.base import answer
from accord.client.summing import Summing
from accord.messages import Briefing
from accord.model.predictor import Predictor
from accord.record.record import Record
from tests_support import images_of

Raw = dict[str, Any]
SMALL = {"use": "patches", "size": 3, "count": 20, "grid": 2}
RECIPE = {"use": "closed-form", "map": {"blocks": [SMALL]}, "as": "closed"}
TEST = images_of([label for label in range(10) for _ in range(5)])


def study(**changes: Any) -> Raw:
    return {
        "name": "closed",
        "data": {"name": "digits", "train_limit": 300, "test_limit": 120, "public": 0.2},
        "partition": {"alpha": 0.1, "clients": 4},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 3, "batch": 32},
        "recipes": [RECIPE],
        "references": False,
        **changes,
    }


def run(out: Path, **changes: Any) -> Path:
    results = accord.run(study(**changes), out=out, workers=1, quiet=True)
    assert not results.failures
    return out


def scores(record: Path, tmp_path: Path, **options: Any) -> torch.Tensor:
    """What the saved ridge says of some test images."""
    folder = tmp_path / "model"
    accord.fuse(record, ["ridge"], trial="closed", workers=1, quiet=True, save=folder, **options)
    return Predictor.load(folder).scores(TEST)


def accuracy(record: Path, fusion: str = "ridge") -> float:
    (row,) = [row for row in Record(record).rows() if row["fusion"] == fusion]
    return float(row["accuracy"])


def uploads(record: Path) -> list[Path]:
    return sorted(record.glob("trials/closed*/uploads/*"))


def late(record: Path, path: Path, client: str, labels: list[int]) -> Path:
    """The upload of one who comes later."""
    (trial,) = Record(record).trials()
    summing = Summing(images_of(labels), Briefing.load(trial.briefing), client)
    answer(summing).save(path)
    return path
