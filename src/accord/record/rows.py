"""The rows of results.csv: one per trial × round × checkpoint × fusion."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from accord.record.folders import TrialFolder

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

POOLED = "pooled"  # the column `partition` of trials that have all images in one place
LEAVE_OUT = "partition.leave_out"
NOBODY = "nobody"  # the column `partition.leave_out` of trials in which all clients take part
OF_ROUNDS = ("mergenet.start_round", "mergenet.fusion_frequency")

Row = dict[str, Any]


def pooled_as(scheme: str | None = None) -> str:
    """The column `partition` of a pooled trial; with the scheme whose clients were pooled, if any.

    Without one, the trial has the same images for every partition.
    """
    return f"{POOLED} {scheme}" if scheme else POOLED


def is_pooled(partition: str) -> bool:
    return partition.partition(" ")[0] == POOLED


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
                "round": checkpoint["round"],
                "epoch": checkpoint["epoch"],
                "took_part": ", ".join(checkpoint["took_part"]),
                **{key: checkpoint[key] for key in OF_ROUND},
                **metrics,
                "trial": trial.id,
            }


def _coordinate(info: dict[str, Any], axis: str) -> Any:
    """The value of a trial on a grid axis; None if the trial does not depend on it.

    A pooled trial has no rounds in which a fusion could begin. Most of them have no partition.
    """
    section, key = axis.split(".")
    if info["partition"] == POOLED and section == "partition":
        return None
    if is_pooled(info["partition"]) and axis in OF_ROUNDS:
        return None
    if axis == LEAVE_OUT:
        return info["config"][section].get(key) or NOBODY
    if section in info.get("idle", ()):
        return None
    return info["config"][section].get(key)
