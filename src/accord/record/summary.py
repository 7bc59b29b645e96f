"""The course of a trial in a few figures: final, best and stable accuracy, and when it was reached.

All figures are made from the measured points of one trial and one fusion. A point is the end of a
round if the trial has several rounds, and a checkpoint otherwise. A trial on pooled images has no
communication, so its points are always checkpoints.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from accord.record.rows import Row
from accord.study.coordinates import is_pooled

THRESHOLDS = (0.60, 0.65, 0.70, 0.75)
STABLE_POINTS = 5  # `stable` is the mean of so many last points


@dataclass(frozen=True)
class Summary:
    """The figures of one trial and one fusion; accuracies are fractions."""

    unit: Literal["round", "epoch"]  # the unit of `reached`
    final: float  # accuracy at the last point
    best: float  # highest accuracy of all points; `best_round` and `best_epoch` say where, first
    best_round: int
    best_epoch: int
    stable: float  # mean accuracy of the last points
    stable_points: int  # the number of these points
    # Threshold in percent, as text → the first round or epoch that reaches it, or None.
    reached: dict[str, int | None]


def summarise(rows: Sequence[Row], thresholds: Iterable[float] = THRESHOLDS) -> Summary:
    """The summary of the rows of one trial and one fusion; there must be at least one row."""
    several = max(row["round"] for row in rows) > 1 and not is_pooled(rows[0]["partition"])
    unit: Literal["round", "epoch"] = "round" if several else "epoch"
    # Of several rows with the same round, or the same epoch, the last one stays.
    points = list({row[unit]: row for row in sorted(rows, key=lambda row: row["epoch"])}.values())
    best = max(points, key=lambda row: float(row["accuracy"]))  # the first one of equal points
    last = [float(row["accuracy"]) for row in points[-STABLE_POINTS:]]
    return Summary(
        unit=unit,
        final=last[-1],
        best=best["accuracy"],
        best_round=best["round"],
        best_epoch=best["epoch"],
        stable=statistics.mean(last),
        stable_points=len(last),
        reached={
            percent_name(threshold): next(
                (row[unit] for row in points if row["accuracy"] >= threshold), None
            )
            for threshold in thresholds
        },
    )


def percent_name(threshold: float) -> str:
    """A threshold in percent, as text: 0.6 is `60`."""
    return f"{100 * threshold:g}"


def summaries(checkpoints: Iterable[Mapping[str, Any]], partition: str) -> dict[str, Any]:
    """Fusion → its summary, from the checkpoints in measures.json; for trial.json."""
    rows: dict[str, list[Row]] = {}
    for checkpoint in checkpoints:
        at = {key: checkpoint[key] for key in ("round", "epoch")}
        for fusion, measured in checkpoint["fusions"].items():
            row = {**at, "partition": partition, "accuracy": measured["accuracy"]}
            rows.setdefault(fusion, []).append(row)
    return {fusion: asdict(summarise(found)) for fusion, found in rows.items()}
