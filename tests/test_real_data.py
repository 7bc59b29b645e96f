"""The whole way on real CIFAR-10 and SVHN, where this machine has them."""

from __future__ import annotations

from pathlib import Path

import pytest

import accord
from accord.messages import Briefing
from accord.record.record import Record


@pytest.mark.parametrize(("name", "augment"), [("cifar10", "reference"), ("svhn", "upright")])
def test_a_study_runs_on_real_images(
    shared_data: Path, tmp_path: Path, name: str, augment: str
) -> None:
    study = {
        "name": "real",
        "data": {"name": name, "train_limit": 300, "test_limit": 100},
        "partition": {"alpha": 0.5, "clients": 3},
        "budget": {"epochs": 1, "batch": 64},
        "recipes": ["fafi"],
        "references": False,
    }
    results = accord.run(study, out=tmp_path, workers=1, data_root=shared_data, quiet=True)
    assert not results.failures
    assert len(results.rows) == 1
    (trial,) = Record(tmp_path).trials()
    header = Briefing.load(trial.briefing).header
    assert (header.height, header.width, header.channels) == (32, 32, 3)
    assert header.augment == augment
    assert header.classes[0] == ("airplane" if name == "cifar10" else "0")
