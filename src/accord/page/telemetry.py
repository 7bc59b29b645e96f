"""The dials of a trial over epochs: for each client, or as the middle and the range of all."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from accord.report.evidence import Evidence, Series


@dataclass(frozen=True)
class Course:
    """The median of all clients at each epoch, with the lowest and the highest value."""

    epochs: list[int]
    middle: list[float]
    low: list[float]
    high: list[float]


def over_clients(series: Series) -> Course:
    epochs = epochs_of(series)
    at = [[values[epoch] for values in series.values() if epoch in values] for epoch in epochs]
    return Course(
        epochs, [statistics.median(v) for v in at], [min(v) for v in at], [max(v) for v in at]
    )


def epochs_of(series: Series) -> list[int]:
    return sorted({epoch for values in series.values() for epoch in values})


def positive(series: Series) -> Series:
    """Only the values above 0, for a logarithmic axis."""
    kept = {
        client: {epoch: value for epoch, value in values.items() if value > 0}
        for client, values in series.items()
    }
    return {client: values for client, values in kept.items() if values}


def all_values(trials: Iterable[Evidence], dial: str, *, last: bool | None = None) -> list[float]:
    """The values of a dial: of all epochs, or only of each client's last or first one."""
    found: list[float] = []
    for trial in trials:
        for values in trial.series(dial).values():
            ordered = [values[epoch] for epoch in sorted(values)]
            found += ordered if last is None else ordered[-1:] if last else ordered[:1]
    return found


def is_constant(series: Series) -> bool:
    """Whether no client's value changes over epochs."""
    return all(max(v.values()) - min(v.values()) < 1e-9 for v in series.values())


def some(epochs: Sequence[int], wanted: Iterable[int] = (), most: int = 12) -> list[int]:
    """At most about `most` epochs, with the first, the last and the wanted ones first."""
    if len(epochs) <= most:
        return list(epochs)
    kept = {epochs[0], epochs[-1], *list(set(wanted) & set(epochs))[: most - 2]}
    step = (len(epochs) - 1) / (most - 1)
    for index in range(most):
        if len(kept) >= most:
            break
        kept.add(epochs[round(index * step)])
    return sorted(kept)


def number(value: float | None) -> str:
    """A dial for people: four digits, with commas in large numbers."""
    if value is None:
        return "–"
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−") if abs(value) < 1e9 else f"{value:.3g}"
    return f"{value:.4g}".replace("-", "−")
