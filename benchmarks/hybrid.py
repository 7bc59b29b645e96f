"""Do trained clients improve the closed form? Their scores are added with a weight.

The weight is chosen on validation images. The benchmark needs CIFAR-10 in a folder where
`accord data` finds it (ACCORD_DATA).
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

import accord
from accord.data.allocation import Allocation, open_allocation
from benchmarks.figure import Figure
from benchmarks.workspace import LACKING, has_cifar10

WEIGHTS = tuple(step / 20 for step in range(20))  # weights of the trained clients
FIXED = {"closed-form": "ridge", "trained": "classwise"}  # recipe → the fusion that is used
STUDY: dict[str, Any] = {
    "name": "hybrid",
    "data": {
        **{"name": "cifar10", "train_limit": 12_000, "validation": 1 / 6, "test_limit": 5_000},
        "augment": "light",
    },
    "partition": {"alpha": 0.05, "clients": 5},
    "net": {"backbone": "resnet10"},
    "budget": {"epochs": 10, "batch": 64},
    "recipes": ["closed-form", {"use": "etf-balanced", "as": "trained"}],
    "references": False,
}


def measure() -> list[Figure]:
    """Runs a whole study, which takes about 8 minutes on two cores."""
    name = "closed form and trained clients, 10,000 CIFAR-10 images, α = 0.05"
    if not has_cifar10():
        return [Figure(name, LACKING)]
    with TemporaryDirectory(prefix="accord-benchmark-") as folder:
        run = Path(folder) / "run"
        accord.run(STUDY, out=run)
        allocation = open_allocation(next((run / "allocations").glob("*.json")))
        said = {recipe: _said(run, recipe, fusion, allocation) for recipe, fusion in FIXED.items()}
    labels = {
        "validation": torch.from_numpy(allocation.part("validation").labels),
        "test": torch.from_numpy(allocation.part("test").labels),
    }

    def accuracy(part: str, weight: float) -> float:
        fixed, trained = (said[recipe][part] for recipe in FIXED)
        mixed = (1 - weight) * fixed + weight * trained
        return float((mixed.argmax(dim=1) == labels[part]).double().mean())

    best = max(WEIGHTS, key=lambda weight: accuracy("validation", weight))
    return [
        Figure(
            name,
            f"{accuracy('test', best):.1%} with a weight of {best:.2f}, closed form alone "
            f"{accuracy('test', 0.0):.1%}, clients alone {accuracy('test', 1.0):.1%}",
        )
    ]


def _said(run: Path, recipe: str, fusion: str, allocation: Allocation) -> dict[str, Tensor]:
    """The log-probabilities of every validation and test image."""
    saved = run.parent / recipe
    accord.fuse(run, [fusion], trial=recipe, save=saved)
    model = accord.Predictor.load(saved)
    images = {"validation": allocation.part("validation"), "test": allocation.part("test")}
    return {part: model.scores(some).log_softmax(dim=1) for part, some in images.items()}
