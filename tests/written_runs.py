"""Runs whose figures a test writes by hand, as files of a record, without any training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from accord.core.config import keys
from accord.core.files import write_json
from accord.study.settings import Setup

# Round, epoch and accuracy of a measured point.
Point = tuple[int, int, float]


def over_rounds(*accuracies: float) -> list[Point]:
    """One local epoch in each round."""
    return [(number, number, accuracy) for number, accuracy in enumerate(accuracies, 1)]


def over_epochs(*accuracies: float) -> list[Point]:
    """One round with a checkpoint after each epoch."""
    return [(1, epoch, accuracy) for epoch, accuracy in enumerate(accuracies, 1)]


def trial(
    recipe: str,
    seed: int,
    points: Sequence[Point],
    *,
    fusions: Sequence[str] = ("average",),
    status: str = "finished",
    figures: dict[str, Any] | None = None,
    config: dict[str, dict[str, Any]] | None = None,
    **setting: Any,
) -> dict[str, Any]:
    """The content of trial.json and measures.json; each further fusion is 0.1 more accurate."""
    costs = {"upload_bytes": 2_000_000, "download_bytes": 1_000_000, "seconds": 3.0}
    known = {**costs, "server_seconds": None, "train_loss": 0.1, "train_accuracy": 0.9}
    known |= {"top5": 0.95, **(figures or {})}
    of_fusion = {"top5": known.pop("top5")}
    checkpoints = [
        {
            "round": number,
            "epoch": epoch,
            "took_part": ["0"],
            **known,
            "fusions": {
                name: {"accuracy": accuracy + 0.1 * index, **of_fusion}
                for index, name in enumerate(fusions)
            },
        }
        for number, epoch, accuracy in points
    ]
    asked: dict[str, dict[str, Any]] = {**{name: {} for name in keys(Setup)}, **(config or {})}
    where = {"dataset": "digits", "partition": "dirichlet", "alpha": 0.1, "clients": 5, **setting}
    info = {
        "status": status, "study": "s", "recipe": recipe, "seed": seed, **where,
        "config": {**asked, "recipe": {"name": recipe}},
    }  # fmt: skip
    return {"info": info, "checkpoints": checkpoints}


def pooled(recipe: str, seed: int, points: Sequence[Point], **more: Any) -> dict[str, Any]:
    """A trial on a single machine."""
    return trial(recipe, seed, points, partition="pooled", alpha=None, clients=1, **more)


def write_run(
    path: Path, trials: Iterable[dict[str, Any]], axes: dict[str, dict[str, Any]] | None = None
) -> Path:
    """A run directory with these trials; `axes` holds the sections of the study with lists."""
    sections: dict[str, Any] = {**{name: {} for name in keys(Setup)}, **(axes or {})}
    (path / "trials").mkdir(parents=True)
    (path / "study.yaml").write_text(yaml.safe_dump({**sections, "recipes": []}))
    for index, one in enumerate(trials):
        info = one["info"]
        folder = path / "trials" / f"{info['recipe']}-{info['seed']}-{index:02}"
        folder.mkdir()
        write_json(folder / "trial.json", {"id": folder.name, **info})
        write_json(folder / "measures.json", {"checkpoints": one["checkpoints"]})
    return path
