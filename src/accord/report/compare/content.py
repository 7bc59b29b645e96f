"""The content of a comparison for `--json`: every figure unrounded, and every seed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from accord.report.compare.baseline import Pair
from accord.report.compare.lines import Line

FIGURES = (
    *("final", "best", "stable", "top5", "gap", "train_accuracy"),
    *("seconds", "server_seconds", "upload_bytes", "download_bytes"),
)


def compare_content(
    pairs: Sequence[Pair], thresholds: Sequence[float], baseline: str, unfinished: int
) -> dict[str, Any]:
    """Accuracies and differences are fractions; a standard deviation of one seed is null."""
    return {
        "baseline": baseline,
        "thresholds": list(thresholds),
        "unfinished_trials": unfinished,
        "lines": [_line(pair) for pair in pairs],
    }


def _line(pair: Pair) -> dict[str, Any]:
    line = pair.line
    return {
        **line.setting,
        "run": line.run or None,
        "unit": line.unit,
        **{key: _spread(line.values(key)) for key in FIGURES},
        "reached": _reached(line),
        "baseline": _named(pair.other),
        "is_baseline": pair.is_baseline,
        "no_difference_because": pair.why or None,
        "difference": {
            **_spread(list(pair.differences.values())),
            "seeds": {str(seed): value for seed, value in pair.differences.items()},
        },
        "seeds": {str(seed): one.to_json() for seed, one in line.seeds.items()},
    }


def _spread(values: list[float]) -> dict[str, Any]:
    return {
        "mean": statistics.mean(values) if values else None,
        "deviation": statistics.stdev(values) if len(values) > 1 else None,
        "count": len(values),
    }


def _reached(line: Line) -> dict[str, Any]:
    """Threshold in percent → the mean over the seeds that reach it, and their number."""
    every = line.values("reached")
    return {
        name: _spread([found[name] for found in every if found[name] is not None])
        for name in every[0]
    }


def _named(line: Line | None) -> dict[str, Any] | None:
    """The setting of a baseline, and its run if lines belong to runs."""
    return None if line is None else {**line.setting, "run": line.run or None}
