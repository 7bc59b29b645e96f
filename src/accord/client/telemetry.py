"""The telemetry of an epoch, and the error message of an epoch that failed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from accord.core.budget import Budget

Event = dict[str, Any]


class LossSums:
    """The losses of an epoch, summed on the device and copied to the CPU at the epoch's end."""

    def __init__(self, local: list[str], align: list[str], device: torch.device) -> None:
        # Apple's GPUs have no 64-bit floats.
        wide = torch.float32 if device.type == "mps" else torch.float64
        self.names, self.aligned = ["loss", "loss_local", *local, *align], len(align)
        self.sums = torch.zeros(len(self.names), dtype=wide, device=device)
        self.peak = torch.full((), -torch.inf, dtype=wide, device=device)
        self.clipped = torch.zeros((), dtype=wide, device=device)
        self.images, self.steps = 0, 0

    def add(self, total: Tensor, local: list[Tensor], align: list[Tensor], images: int) -> None:
        """Adds one step: the minimised loss, the loss of each term, and the number of images."""
        losses = torch.stack([total, torch.stack(local).sum(), *local, *align]).to(self.sums)
        self.sums += images * losses
        self.peak = torch.maximum(self.peak, losses[len(losses) - self.aligned :].sum())
        self.images, self.steps = self.images + images, self.steps + 1

    def event(self) -> Event:
        """Means over images; for the sum of alignment losses also the largest of all steps."""
        means = dict(zip(self.names, (self.sums / self.images).tolist(), strict=True))
        align = [means[name] for name in self.names[len(self.names) - self.aligned :]]
        return {
            **means,
            "loss_align": sum(align) if align else None,
            "loss_align_peak": self.peak.item() if align else None,
            "clipped": self.clipped.item() / self.steps,
        }


def trouble(event: Event, before: Sequence[Event]) -> str | None:
    """A message about the values of an epoch that are not finite; None if all are finite.

    `before` holds the events of earlier epochs. The message quotes the last one, whose values were
    still finite.
    """
    numbers = {key: value for key, value in event.items() if isinstance(value, float)}
    broken = {key: value for key, value in numbers.items() if not math.isfinite(value)}
    if not broken:
        return None
    found = f"epoch {event['epoch']} gave {_told({**broken, **_telling(event)})}"
    if before:
        found += f"; epoch {before[-1]['epoch']} ended with {_told(_telling(before[-1]))}"
    return found


def advice(budget: Budget, align: Mapping[str, Any]) -> str:
    """The balance and learning rate of a training that failed, and what usually helps."""
    rules = ", ".join(f"{spec['balance']['use']} of {name}" for name, spec in align.items())
    ways = ["Lower budget.lr" if budget.muon is None else "Lower budget.lr or budget.muon"]
    if not budget.clip:
        ways.append("set budget.clip")
    if align:
        ways.append("lower λ or choose another balance")
    return f"(balance {rules or 'none'}, {budget.rates}). {', or '.join(ways)}."


def _telling(event: Event) -> Event:
    """The losses and dials of an event, which help to explain a failure."""
    chosen = {
        key: value
        for key, value in event.items()
        if key in ("loss_local", "loss_align") or "lambda" in key or "sigma" in key
    }
    return {key: value for key, value in chosen.items() if value is not None}


def _told(values: Event) -> str:
    return ", ".join(f"{key} = {value:.4g}" for key, value in values.items())
