"""The accuracy and the time of one distilled student, compared with its five teachers.

The benchmark needs CIFAR-10 in a folder where `accord data` finds it (ACCORD_DATA).
"""

from __future__ import annotations

import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import accord
from accord.core.randomness import numpy_generator
from accord.core.threads import one_thread
from accord.data.imageset import ImageSet
from benchmarks.figure import Figure
from benchmarks.turns import ratio
from benchmarks.workspace import LACKING, has_cifar10

TARGET, ROUNDS, IMAGES = 0.95, 5, 1_000
TEACHER = "classwise"
STUDY: dict[str, Any] = {
    "name": "student",
    "data": {"name": "cifar10", "train_limit": 15_000, "public": 0.3333, "augment": "light"},
    "partition": {"alpha": 0.05, "clients": 5},
    "net": {"backbone": "resnet10"},
    "budget": {"epochs": 10, "batch": 64},
    "recipes": ["etf-balanced"],
    "references": False,
}
FUSIONS: dict[str, dict[str, Any]] = {
    TEACHER: {"use": TEACHER},
    "distilled": {"use": "distilled", "teacher": {"use": TEACHER}},
}


def measure() -> list[Figure]:
    """Runs a whole study, which takes about 8 minutes on two cores, and times both models."""
    name = "student of five resnet10 clients, 5,000 CIFAR-10 images without labels"
    if not has_cifar10():
        return [Figure(name, LACKING)]
    with TemporaryDirectory(prefix="accord-benchmark-") as folder:
        run = Path(folder) / "run"
        accord.run(STUDY, out=run)
        for fusion, spec in FUSIONS.items():
            rows = accord.fuse(run, [spec], save=Path(folder) / fusion).rows
        accuracy = {row["fusion"]: row["accuracy"] for row in rows}
        seconds = _seconds({name: Path(folder) / name for name in FUSIONS})
    kept = accuracy["distilled"] / accuracy[TEACHER]
    cost = ratio(seconds, "distilled", TEACHER)
    return [
        Figure(
            name,
            f"{kept:.3f} × its teacher's accuracy ({accuracy['distilled']:.1%} against "
            f"{accuracy[TEACHER]:.1%})",
            f"≥ {TARGET} ×",
            kept >= TARGET,
        ),
        Figure("an answer of the student", f"{cost:.2f} × the time of its teacher's", "0.2 ×"),
    ]


def _seconds(saved: dict[str, Path]) -> dict[str, list[float]]:
    """The times of the saved models on the same images, measured in turns."""
    draws = numpy_generator(0, "benchmark", "student")
    pixels = draws.integers(256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)
    images = ImageSet(pixels, np.arange(IMAGES), np.zeros(IMAGES, dtype=np.int64))
    models = {name: accord.Predictor.load(folder) for name, folder in saved.items()}
    seconds: dict[str, list[float]] = {name: [] for name in models}
    with one_thread():
        for _ in range(ROUNDS):
            for name, model in models.items():
                began = time.process_time()
                model.scores(images)
                seconds[name].append(time.process_time() - began)
    return seconds
