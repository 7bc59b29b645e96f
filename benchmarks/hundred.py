"""Do a few exchanges gain as much with a hundred classes, and are the models as sure as right?

The images are halves of CIFAR-10 and SVHN side by side, and their classes all pairs of the classes
of both (many_classes.py). They are not mirrored, because some digits would be another one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

import accord
from accord.core.randomness import numpy_generator
from accord.data.datasets import load
from accord.data.inventory import inventory
from benchmarks.figure import Figure
from benchmarks.many_classes import LACKING, SOURCES, halves
from benchmarks.workspace import workspace

EACH = {"train": 400, "test": 50}  # images of each class
RECIPES = (
    "closed-form",
    "few-rounds",
    "few-rounds-public",
    "public-teacher",
)


def measure() -> list[Figure]:
    """Runs one study, which takes about 45 minutes of one core."""
    found = {entry.name for entry in inventory(None) if entry.found}
    if not found.issuperset(SOURCES):
        return [Figure("hundred", LACKING)]
    with workspace() as folder:
        _write_images(folder / "hundred.npz")
        study: dict[str, Any] = {
            "name": "hundred",
            "seeds": [1],
            "data": {
                "name": "npz",
                "path": str(folder / "hundred.npz"),
                "public": 0.125,
                "augment": "upright-holes",
            },
            "partition": {"scheme": "dirichlet", "alpha": 0.05, "clients": 5},
            "net": {"backbone": "white7"},
            "teacher": {"epochs": 30},
            "recipes": list(RECIPES),
            "references": False,
        }
        rows = accord.run(study, out=folder / "record", workers=2).rows
        return [_figure(recipe, rows) for recipe in RECIPES]


def _write_images(path: Path) -> None:
    left, right = (load(name, tell=lambda _: None) for name in SOURCES)
    parts: dict[str, Any] = {}
    for part, each in EACH.items():
        images = halves(left, right, part, each, numpy_generator(0, "hundred", part))
        parts |= {f"x_{part}": images.images, f"y_{part}": images.labels}
    np.savez(path, **parts)


def _figure(recipe: str, rows: list[dict[str, Any]]) -> Figure:
    """The last round of a recipe, with the fusion that is the most accurate."""
    own = [row for row in rows if row["recipe"] == recipe]
    last = max(int(row["round"]) for row in own)
    best = max((r for r in own if int(r["round"]) == last), key=lambda r: float(r["accuracy"]))
    accuracy, ece = (100 * float(best[key]) for key in ("accuracy", "ece"))
    return Figure(f"{recipe} ({best['fusion']})", f"{accuracy:.1f} % accuracy, ECE {ece:.1f} %")
