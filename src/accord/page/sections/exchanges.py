"""Accuracy over the exchanges of each client, over bytes and over time, for lines of rounds."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from accord.core.names import shown
from accord.page.figures.curves import Curve, curves
from accord.page.figures.style import MOST, keys_for
from accord.page.grid import Place, places_of
from accord.page.parts import Figure, Key, Panel, Part
from accord.page.section import section
from accord.page.subject import Subject, name_of
from accord.report.compare.lines import Line
from accord.report.comparison import pooled

PLACES = 6


@dataclass(frozen=True)
class Spent:
    """What a line has needed until one of its rounds, and its accuracy then; means over seeds."""

    exchanges: float
    megabytes: float
    minutes: float
    accuracy: float


AXES: tuple[tuple[str, Callable[[Spent], float]], ...] = (
    ("exchanges of each client", lambda spent: spent.exchanges),
    ("MB up and down, all clients", lambda spent: spent.megabytes),
    ("minutes of one core, clients and server", lambda spent: spent.minutes),
)


@section("exchanges", "Accuracy over exchanges", 45)
def exchanges(subject: Subject) -> list[Part]:
    measured = [(place, _spent(subject, place)) for place in places_of(subject)]
    settings = [(place, spent) for place, spent in measured if _several(spent)]
    names = list(dict.fromkeys(name for _, spent in settings for name in spent))
    keys = dict(zip(names, keys_for([shown(name) for name in names]), strict=True))
    panels = [
        _panel(spent, keys, label, cost, place.short if len(settings) > 1 else "")
        for place, spent in settings[:PLACES]
        for label, cost in AXES
    ]
    if not panels:
        return []
    caption = (
        "Test accuracy after each exchange, mean over seeds. A recipe that stands on another one "
        "includes its exchanges, bytes and minutes. Not included is the time of measuring, of "
        "training teachers, of drawing maps and of the last fusion."
    )
    if len(settings) > PLACES:
        caption += f" Further settings, not drawn: {len(settings) - PLACES}."
    words = " ".join(_words(place, spent) for place, spent in settings[:PLACES])
    return [Figure(panels, words, caption, list(keys.values()))]


def _several(found: dict[str, list[Spent]]) -> bool:
    return any(points[-1].exchanges > 1 for points in found.values())


def _spent(subject: Subject, place: Place) -> dict[str, list[Spent]]:
    """The points of the best lines of a setting, in the order of their rounds."""
    own = [line for line in place.own if not pooled(line.setting)]
    ranked = sorted(own, key=lambda line: -statistics.fmean(line.values("final")))
    found = {name_of(line): points(subject, line) for line in ranked[:MOST]}
    return {name: one for name, one in found.items() if one}


def points(subject: Subject, line: Line) -> list[Spent]:
    """One point per exchange: its last round, in all seeds that have measured it."""
    rounds: dict[int, list[Spent]] = {}
    trials = subject.trials_of(line).values()
    for trial in trials:
        rows = [row for row in trial.rows if row["fusion"] == line.fusion]
        rows.sort(key=lambda row: int(row["epoch"]))
        for number, row in {int(row["round"]): row for row in rows}.items():
            spent = _of(row)
            if spent is not None:
                rounds.setdefault(number, []).append(spent)
    means = [_mean(several) for _, several in sorted(rounds.items()) if len(several) == len(trials)]
    last = {spent.exchanges: spent for spent in means}
    return list(last.values())


def _of(row: dict[str, Any]) -> Spent | None:
    """The point of one row of results; None for a model that no exchange has made."""
    told = [row.get(key) for key in ("exchanges", "upload_bytes", "download_bytes", "seconds")]
    if any(value in (None, "") for value in told):
        return None
    count, up, down, seconds = (float(str(value)) for value in told)
    server = float(row.get("server_seconds") or 0)
    accuracy = 100 * float(row["accuracy"])
    return Spent(count, (up + down) / 1e6, (seconds + server) / 60, accuracy)


def _mean(several: Sequence[Spent]) -> Spent:
    return Spent(
        statistics.fmean(one.exchanges for one in several),
        statistics.fmean(one.megabytes for one in several),
        statistics.fmean(one.minutes for one in several),
        statistics.fmean(one.accuracy for one in several),
    )


def _panel(
    found: dict[str, list[Spent]],
    keys: dict[str, Key],
    label: str,
    cost: Callable[[Spent], float],
    title: str,
) -> Panel:
    series = [
        Curve(keys[name], [cost(one) for one in points], [one.accuracy for one in points])
        for name, points in found.items()
    ]
    return curves(series, label, "accuracy in %", title=title)


def _words(place: Place, found: dict[str, list[Spent]]) -> str:
    told = [
        f"{name} {last.accuracy:.1f} % after {last.exchanges:.0f} "
        f"exchange{'s' if last.exchanges > 1 else ''}, "
        f"{last.megabytes:,.3g} MB and {last.minutes:,.3g} minutes"
        for name, (*_, last) in found.items()
    ]
    return f"Accuracy over exchanges, {place.words}: {'; '.join(told)}."
