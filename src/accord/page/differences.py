"""Mean, standard deviation, and the confidence interval of paired differences."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from accord.report.compare.baseline import Pair
from accord.report.compare.lines import Line

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """The mean of differences of equal seeds, and its confidence interval if it can be known."""

    mean: float
    low: float | None
    high: float | None
    pairs: int

    @property
    def open(self) -> bool:
        """Whether the sign is not certain: the interval holds 0."""
        return self.low is not None and self.high is not None and self.low <= 0 <= self.high


def difference(values: Sequence[float]) -> Difference | None:
    """Student's paired interval: mean ± t · s/√n, with n − 1 degrees of freedom."""
    if not values:
        return None
    mean, count = statistics.fmean(values), len(values)
    if count == 1:
        return Difference(mean, None, None, 1)
    from scipy.special import stdtrit  # the quantile of Student's t; scipy.stats loads slowly

    half = float(stdtrit(count - 1, (1 + CONFIDENCE) / 2)) * statistics.stdev(values) / count**0.5
    return Difference(mean, mean - half, mean + half, count)


def to_baseline(pair: Pair) -> Difference | None:
    """The difference of a line to its baseline; None if it is the baseline, or has none."""
    return None if pair.is_baseline else difference(list(pair.differences.values()))


def between(line: Line, other: Line) -> Difference | None:
    """The difference of two lines."""
    return difference(list(Pair(line, other).differences.values()))


def signed(points: float) -> str:
    """A difference in points with its sign, such as `+1.6` or `−0.3`."""
    text = f"{100 * points:+.1f}".replace("-", "−")
    return "0.0" if text in ("+0.0", "−0.0") else text


def interval(found: Difference) -> str:
    if found.low is None or found.high is None:
        return "–"
    return f"[{signed(found.low)}, {signed(found.high)}]"
