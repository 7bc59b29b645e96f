"""What a client tells of an epoch, and how it tells that an epoch went wrong."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

Event = dict[str, Any]


def trouble(event: Event, before: Sequence[Event]) -> str | None:
    """The values of an epoch that are not finite, with what explains them; None: all are.

    `before`: the events of earlier epochs, the last of which shows where things still stood well.
    """
    numbers = {key: value for key, value in event.items() if isinstance(value, float)}
    broken = {key: value for key, value in numbers.items() if not math.isfinite(value)}
    if not broken:
        return None
    found = f"epoch {event['epoch']} gave {_told({**broken, **_telling(event)})}"
    if before:
        found += f"; epoch {before[-1]['epoch']} ended with {_told(_telling(before[-1]))}"
    return found


def _telling(event: Event) -> Event:
    """Losses and dials: what explains a training that breaks."""
    chosen = {
        key: value
        for key, value in event.items()
        if key in ("loss_local", "loss_align") or "lambda" in key or "sigma" in key
    }
    return {key: value for key, value in chosen.items() if value is not None}


def _told(values: Event) -> str:
    return ", ".join(f"{key} = {value:.4g}" for key, value in values.items())
