"""The rows of results.csv: one per trial × round × checkpoint × fusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accord.record.folders import TrialFolder
from accord.study.coordinates import coordinate, depends_on

# The columns of the setting and of the measurements; `trial` is the name of the trial's folder.
SETTING = (
    "study",
    "dataset",
    "partition",
    "alpha",
    "clients",
    "recipe",
    "fusion",
    "seed",
    "round",
    "epoch",
)
MEASURED = (
    "accuracy",
    "top5",
    "accuracy_before",
    "fusion_applied",
    "balanced_accuracy",
    "worst_class",
    "ece",
    "validation_accuracy",
    "personal_accuracy",
    "site_worst",
    "worst_site",
    "site_mean",
    "site_spread",
    "loss",
    "train_loss",
    "train_accuracy",
    "upload_bytes",
    "download_bytes",
    "exchanges",
    "seconds",
    "server_seconds",
    "took_part",
)
COLUMNS = (*SETTING, *MEASURED, "trial")
OF_ROUND = (
    *("upload_bytes", "download_bytes", "seconds", "server_seconds"),
    *("train_loss", "train_accuracy"),
)

Row = dict[str, Any]


def rows_of(trial: TrialFolder, axes: Sequence[str]) -> Iterator[Row]:
    """The rows of a trial in results.csv, with a column for each of the grid's `axes`."""
    info = trial.info()
    if not info:
        return
    shared = {key: info.get(key) for key in COLUMNS if key in info}
    for checkpoint in trial.measures()["checkpoints"]:
        for fusion, measured in checkpoint["fusions"].items():
            metrics = {key: value for key, value in measured.items() if key in COLUMNS}
            yield {
                **dict.fromkeys(COLUMNS),
                **shared,
                **{axis: _coordinate(info, axis) for axis in axes},
                "fusion": fusion,
                "round": checkpoint["round"] + checkpoint.get("rounds_before", 0),
                "epoch": checkpoint["epoch"],
                "took_part": ", ".join(checkpoint["took_part"]),
                **{key: checkpoint[key] for key in OF_ROUND},
                **metrics,
                "trial": trial.id,
            }


def _coordinate(info: dict[str, Any], axis: str) -> Any:
    """The value of a trial on a grid axis; None if the trial does not depend on it."""
    section, key = axis.split(".")
    if not depends_on(axis, info["partition"], info.get("idle", ())):
        return None
    return coordinate(axis, info["config"][section].get(key))
