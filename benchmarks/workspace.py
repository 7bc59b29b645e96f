"""Data of the benchmarks: random images in a temporary folder, and trials that can be trained.

Time and memory do not depend on the content of the images, so no dataset is needed.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from accord.core.randomness import numpy_generator
from accord.data.inventory import inventory
from accord.federation.plan import Plan
from accord.federation.trial_run import TrialRun
from accord.record.record import Record
from accord.study.study import load_study

SIZE, CHANNELS, CLASSES = 32, 3, 10
LACKING = "not measured: CIFAR-10 was not found (set ACCORD_DATA)"


def has_cifar10() -> bool:
    """Whether `accord data` finds CIFAR-10, which few benchmarks need."""
    return any(entry.name == "cifar10" and entry.found for entry in inventory(None))


@contextmanager
def workspace() -> Iterator[Path]:
    """A temporary folder for all files of a benchmark, also for decoded images."""
    before = os.environ.get("ACCORD_CACHE")
    with tempfile.TemporaryDirectory(prefix="accord-benchmark-") as name:
        os.environ["ACCORD_CACHE"] = str(Path(name) / "decoded")
        try:
            yield Path(name)
        finally:
            os.environ.pop("ACCORD_CACHE")
            if before is not None:
                os.environ["ACCORD_CACHE"] = before


def random_images(folder: Path, train: int, test: int) -> dict[str, Any]:
    """The section `data` of a study with an .npz file of noise and equally frequent labels."""
    draws = numpy_generator(0, "benchmark", "images")
    path = folder / "random.npz"
    parts: dict[str, Any] = {}
    for part, count in (("train", train), ("test", test)):
        shape = (count, SIZE, SIZE, CHANNELS)
        parts[f"x_{part}"] = draws.integers(256, size=shape, dtype=np.uint8)
        parts[f"y_{part}"] = np.arange(count) % CLASSES
    np.savez(path, **parts)
    return {"name": "npz", "path": str(path)}


def ready_trial(study: dict[str, Any], folder: Path) -> TrialRun:
    """The first trial of `study`, with a briefing and with its training jobs in `ready`."""
    checked = load_study(study)
    plan = Plan(checked, None, lambda line: print(line, file=sys.stderr))
    record = Record(folder)
    with record.lock():
        record.adopt(checked)
        run = next(one for one in plan.runs(record) if isinstance(one, TrialRun))
        run.save_allocation()
        run.advance()
    return run
