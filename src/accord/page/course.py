"""The accuracy of a line at each of its points: epochs, or rounds."""

from __future__ import annotations

import statistics
from dataclasses import dataclass

from accord.page.subject import Subject
from accord.report.compare.lines import Line
from accord.report.evidence import Evidence


@dataclass(frozen=True)
class Point:
    """The accuracies of all seeds at one epoch or round."""

    at: int
    values: dict[int, float]  # seed → accuracy

    @property
    def mean(self) -> float:
        return statistics.fmean(self.values.values())

    @property
    def deviation(self) -> float:
        return statistics.stdev(self.values.values()) if len(self.values) > 1 else 0.0


def course_of(subject: Subject, line: Line, unit: str | None = None) -> list[Point]:
    """The points of a line that all its seeds have measured, in order; `unit`: epoch or round."""
    found: dict[int, dict[int, float]] = {}
    trials = subject.trials_of(line)
    for seed, trial in trials.items():
        for at, value in points_of(trial, line.fusion, unit or line.unit).items():
            found.setdefault(at, {})[seed] = value
    return [Point(at, values) for at, values in sorted(found.items()) if len(values) == len(trials)]


def points_of(trial: Evidence, fusion: str, unit: str) -> dict[int, float]:
    """Epoch or round → test accuracy; of several checkpoints of a round, the last one counts."""
    rows = sorted((row for row in trial.rows if row["fusion"] == fusion), key=lambda r: r["epoch"])
    return {int(row[unit]): float(row["accuracy"]) for row in rows}
