"""The estimates of `--dry-run`, compared with what the record of the same study says afterwards.

Every case is a small study of one recipe: first it is estimated, then it is run.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import accord
from accord.data.datasets import load
from accord.record.record import Record
from accord.report.estimate import estimate
from benchmarks.figure import Figure
from benchmarks.workspace import workspace

MEMORY, TIME = 1.25, 1.3  # the largest ratios that are right
WORKERS = 2  # with one worker, this process would do the work: its memory holds other things too
SMALL = 32  # pixels; images of 64 pixels cost four times as much, so there are half as many


@dataclass(frozen=True)
class Case:
    """A study of one recipe."""

    recipe: str
    pixels: int
    classes: int
    fusions: tuple[str, ...] = ()
    settings: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        used = ", ".join((self.recipe, *self.fusions))
        return f"{used}, {self.pixels} px, {self.classes} classes"

    def study(self, folder: Path) -> dict[str, Any]:
        return {
            "name": "estimates",
            "data": {"name": "npz", "path": str(_images(folder, self.pixels, self.classes))},
            "partition": {"scheme": "dirichlet", "alpha": 0.5, "clients": 4},
            "net": {"backbone": "resnet10"},
            "budget": {"epochs": 2},
            "recipes": [self.recipe],
            "fusions": list(self.fusions),
            "references": False,
            **dict(self.settings),
        }


CASES = (
    Case("fafi", 32, 10, ("classwise",)),
    Case("etf-balanced", 32, 100, ("classwise",)),
    Case("ce-ensemble", 64, 10),
    Case("fafi", 64, 100, ("classwise",)),
    Case("fedavg", 32, 10, settings=(("rounds", {"count": 3}), ("budget", {"epochs": 1}))),
    Case("closed-form-small", 32, 10),
    Case("closed-form-small", 64, 100),
    Case("closed-form", 32, 100),
    Case("closed-form", 64, 10),
)


def measure() -> list[Figure]:
    with workspace() as folder:
        return [_figure(case, folder, index) for index, case in enumerate(CASES)]


def _figure(case: Case, folder: Path, index: int) -> Figure:
    record = Record(folder / str(index))
    study = accord.load_study(case.study(folder))
    said = estimate(study, record, None, WORKERS)
    accord.run(study, out=record.path, workers=WORKERS, quiet=True)
    infos = [one.info() for one in (*record.trials(), *_helpers(record))]
    peak = max(info["peak_memory_bytes"] for info in infos)
    seconds = sum(info["core_seconds"] for info in infos)
    memory, time = said.memory / peak, said.core_seconds / seconds
    holds = _within(memory, MEMORY) and _within(time, TIME)
    return Figure(
        case.name,
        f"memory {memory:.2f} × {peak / 1e9:.2f} GB, time {time:.2f} × {seconds:.0f} s",
        f"{MEMORY} ×, {TIME} ×",
        holds,
    )


def _helpers(record: Record) -> list[Any]:
    folder = record.path / "teachers"
    return [record.teacher(path.name) for path in folder.iterdir()] if folder.is_dir() else []


def _within(ratio: float, bound: float) -> bool:
    return 1 / bound <= ratio <= bound


def _images(folder: Path, pixels: int, classes: int) -> Path:
    """An .npz file of scikit-learn's digits, enlarged; a digit is divided into several classes."""
    path = folder / f"digits-{pixels}-{classes}.npz"
    if path.exists():
        return path
    found = load("digits", tell=lambda _: None).train
    count = len(found.labels) * SMALL // pixels
    images = np.asarray(found.images[:count])[..., :1]
    times = pixels // images.shape[1]
    larger = images.repeat(times, axis=1).repeat(times, axis=2).repeat(3, axis=3)
    finer = np.arange(count) // 10 % (classes // 10)
    labels = np.asarray(found.labels[:count]) * (classes // 10) + finer
    cut = count - count // 4
    parts: dict[str, Any] = {"x_train": larger[:cut], "y_train": labels[:cut]}
    np.savez(path, x_test=larger[cut:], y_test=labels[cut:], **parts)
    return path


if __name__ == "__main__":
    from benchmarks.figure import show

    show(measure())
