"""`ridge-calibrated` predicts the classes of `ridge`, with the confidences of validation images."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar
from torch.nn import functional as F

import accord
from accord.closed_form.leaving import Checked
from accord.closed_form.posterior import Prior
from accord.core.errors import AccordError
from accord.data.allocation import open_allocation
from accord.fusion.calibrated_ridge import best_factor
from accord.model.predictor import Predictor


def study(**data: Any) -> dict[str, Any]:
    small = {"blocks": [{"use": "patches", "size": 3, "count": 6}]}
    return {
        "name": "calibrated",
        "data": {"name": "digits", "train_limit": 300, "test_limit": 100, **data},
        "partition": {"alpha": 0.3, "clients": 3},
        "net": {"backbone": "conv4"},
        "recipes": [{"use": "closed-form-small", "map": small, "as": "small"}],
        "fusions": ["ridge-calibrated"],
        "references": False,
    }


def test_the_factor_is_the_most_likely_one() -> None:
    """Compared with a search by scipy; every class counts the same, or every image."""
    draws = np.random.default_rng(0)
    labels = torch.from_numpy(draws.choice(3, 400, p=[0.7, 0.2, 0.1]))
    features = torch.from_numpy(np.eye(3)[labels] + draws.normal(0, 0.8, (400, 3)))
    weights, bias = 6 * torch.eye(3), torch.tensor([0.3, 0.0, -0.2])
    logits = features @ weights.double().T + bias.double()
    counts = torch.bincount(labels).double()
    cases: dict[Prior, torch.Tensor] = {
        "uniform": 1 / counts[labels],
        "data": torch.ones(400).double(),
    }
    for prior, worth in cases.items():

        def loss(factor: float, worth: torch.Tensor = worth) -> float:
            each = F.cross_entropy(factor * logits, labels, reduction="none")
            return float((worth * each).sum())

        expected = minimize_scalar(loss, bounds=(0.01, 10), method="bounded").x
        seen = Checked(features, labels)
        assert best_factor(seen, weights, bias, prior) == pytest.approx(expected, rel=1e-3)
        unsure = best_factor(seen, weights / 50, bias / 50, prior)
        assert unsure == pytest.approx(min(50 * expected, 10.0), rel=1e-2)


def test_no_predicted_class_changes_and_validation_images_are_likelier(tmp_path: Path) -> None:
    found = accord.run(study(validation=0.3), out=tmp_path / "run", workers=1, quiet=True)
    assert not found.failures
    rows = {row["fusion"]: row for row in found.rows}
    assert rows["ridge"]["accuracy"] == rows["ridge-calibrated"]["accuracy"]
    (path,) = (tmp_path / "run" / "allocations").glob("*.json")
    validation = open_allocation(path).part("validation")
    labels = torch.from_numpy(validation.labels)
    losses, classes = dict[str, float](), dict[str, list[int]]()
    for name in rows:
        accord.fuse(tmp_path / "run", [name], workers=1, quiet=True, save=tmp_path / name)
        scores = Predictor.load(tmp_path / name).scores(validation)
        losses[name] = float(F.cross_entropy(scores, labels))
        classes[name] = scores.argmax(dim=1).tolist()
    assert classes["ridge"] == classes["ridge-calibrated"]
    assert losses["ridge-calibrated"] < losses["ridge"]


def test_it_needs_validation_images(tmp_path: Path) -> None:
    with pytest.raises(AccordError, match=r"needs validation images, found none.*data\.validation"):
        accord.run(study(), out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()
