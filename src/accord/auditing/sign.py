"""A sign: how far one client stands out by one kind of evidence, and why."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

FEWEST = 4  # clients; among fewer nobody can say which one is unusual
CLEAR = 1.0  # the strength from which a client is named in a warning
DEVIATIONS = 6.0  # robust deviations from the median that are a clear sign
PER_MAD = 1.4826  # a normal deviation is so many median absolute deviations


@dataclass(frozen=True)
class Sign:
    """`strength` is 1 where a sign is clear; below it, honest clients show such values too."""

    client: str
    kind: str  # the kind of evidence
    strength: float
    text: str  # a sentence with figures

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "strength": round(self.strength, 3), "text": self.text}


def distances(values: Mapping[str, float], floor: float) -> dict[str, float]:
    """Client → its distance from the median, in robust deviations.

    A robust deviation is 1.4826 × the median absolute deviation, and at least `floor`: if most
    clients are nearly equal, a small difference does not count. Fewer than FEWEST clients have no
    distances.
    """
    if len(values) < FEWEST:
        return {}
    median = statistics.median(values.values())
    spread = statistics.median(abs(value - median) for value in values.values())
    scale = max(PER_MAD * spread, floor)
    return {name: (value - median) / scale for name, value in values.items()}


def ratio_strengths(
    values: Mapping[str, float], *, factor: float, floor: float = 0.1
) -> dict[str, tuple[float, float]]:
    """Client → (strength, ratio to the median) of positive values such as norms.

    A value is a clear sign if it is DEVIATIONS robust deviations from the median of the logarithms
    and also differs from it by the `factor`.
    """
    logs = {name: math.log(max(value, 1e-30)) for name, value in values.items()}
    found = distances(logs, floor)
    if not found:
        return {}
    median = statistics.median(logs.values())
    return {
        name: (
            min(abs(found[name]) / DEVIATIONS, abs(logs[name] - median) / math.log(factor)),
            math.exp(min(logs[name] - median, 700.0)),
        )
        for name in values
    }


def times(ratio: float) -> str:
    """`3.1 times` or `0.32 times`, for sentences about ratios."""
    return f"{ratio:.3g} times"
