"""Measures recipes in turns on one thread, so that other programs disturb all of them equally."""

from __future__ import annotations

from statistics import median


def ratio(seconds: dict[str, list[float]], recipe: str, plain: str = "fafi") -> float:
    """The median over rounds of the ratio to the plain recipe in the same round."""
    pairs = zip(seconds[recipe], seconds[plain], strict=True)
    return median(one / other for one, other in pairs)
