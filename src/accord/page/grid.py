"""The settings of a report: the lines that share dataset, partition, α and grid axes.

The settings form grids: one table each, whose columns are the values of α, or of another axis.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from accord.page.subject import Subject, is_reference
from accord.report.compare.baseline import Pair
from accord.report.compare.lines import Line
from accord.report.comparison import pooled, short
from accord.study.coordinates import POOLED, axis_labels

ALPHA = "alpha"


@dataclass(frozen=True)
class Place:
    """One setting, with its lines; lines on pooled images belong to every setting they fit."""

    setting: Mapping[str, Any]
    lines: list[Line]
    words: str  # all that identifies it
    column: str  # what tells it from the other settings of its grid
    short: str  # what tells it from all other settings of the report
    pairs: list[Pair] = field(default_factory=list)

    @property
    def own(self) -> list[Line]:
        """The lines that are methods and no references."""
        return [line for line in self.lines if not is_reference(line)]

    @property
    def best(self) -> Line | None:
        """The line with the highest mean accuracy that is no reference."""
        return max(self.own, key=_accuracy, default=None)


@dataclass(frozen=True)
class Grid:
    """Settings that differ in one axis only."""

    title: str
    places: list[Place]


def places_of(subject: Subject) -> list[Place]:
    return [place for grid in grids_of(subject) for place in grid.places]


def grids_of(subject: Subject) -> list[Grid]:
    """All settings of the report; empty if no trial is finished."""
    settings = _settings(subject.lines)
    if not settings:
        return []
    axis = _column_axis(settings)
    groups: dict[tuple[str, ...], list[dict[str, Any]]] = {}
    for setting in settings:
        rest = {key: value for key, value in setting.items() if key != axis}
        groups.setdefault(tuple(map(str, rest.values())), []).append(setting)
    alone = len(groups) == 1
    return [_grid(subject, group, axis, alone) for group in groups.values()]


def _grid(
    subject: Subject, settings: Sequence[dict[str, Any]], axis: str | None, alone: bool
) -> Grid:
    places = []
    for setting in settings:
        pairs = [pair for pair in subject.pairs if _fits(pair.line, setting)]
        column = _words({axis: setting[axis]}) if axis else "accuracy %"
        pairs = _with_baseline(pairs)
        lines = [pair.line for pair in pairs]
        words = _words(setting)
        short_words = column if axis and alone else words
        places.append(Place(setting, lines, words, column, short_words, pairs))
    rest = {key: value for key, value in settings[0].items() if key != axis}
    return Grid(_words(rest), places)


def _with_baseline(pairs: Sequence[Pair]) -> list[Pair]:
    """A line on pooled images is compared with the baseline of this setting."""
    here = [pair.line for pair in pairs if pair.is_baseline]
    same = {pair.line.name: [one for one in here if one.run == pair.line.run] for pair in pairs}
    return [
        Pair(pair.line, (same[pair.line.name] or here)[0])
        if pair.other is None and here and pooled(pair.line.setting)
        else pair
        for pair in pairs
    ]


def _settings(lines: Sequence[Line]) -> list[dict[str, Any]]:
    """The different settings, in order. A value None fits every value of another line."""
    federated = [line for line in lines if not pooled(line.setting)] or list(lines)
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for line in federated:
        setting = _setting(line)
        found.setdefault(tuple(map(str, setting.values())), setting)
    every = list(found.values())
    return [one for one in every if not any(_more_exact(other, one) for other in every)]


def _setting(line: Line) -> dict[str, Any]:
    keys = ("dataset", "partition", ALPHA)
    clients = None if pooled(line.setting) else line.dealt
    return {**{key: line.setting[key] for key in keys}, "clients": clients, **line.axes}


def _more_exact(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    """Whether `one` gives a value for all that `other` leaves open, and agrees otherwise."""
    axes = [key for key in other if "." in key]
    same = all(one[key] == other[key] for key in other if "." not in key)
    open_ = any(other[key] is None and one[key] is not None for key in axes)
    return same and open_ and all(other[key] is None or other[key] == one[key] for key in axes)


def _fits(line: Line, setting: Mapping[str, Any]) -> bool:
    own = _setting(line)
    if own["dataset"] != setting["dataset"]:
        return False
    if own["partition"] == POOLED != setting["partition"]:
        fixed = {}
    else:
        fixed = {"partition": own["partition"].removeprefix(f"{POOLED} "), ALPHA: own[ALPHA]}
        if own["clients"] is not None:
            fixed["clients"] = own["clients"]
    axes = {key: value for key, value in own.items() if "." in key and value is not None}
    wanted = {**fixed, **axes}
    return all(setting[key] in (value, None) for key, value in wanted.items())


def _column_axis(settings: Sequence[Mapping[str, Any]]) -> str | None:
    """What the columns of a table are: α if it varies, else the first axis that does."""
    axes = [ALPHA, *(key for key in settings[0] if "." in key), "clients", "partition", "dataset"]
    for axis in axes:
        if len({str(setting[axis]) for setting in settings}) > 1:
            return axis
    return None


def _words(setting: Mapping[str | None, Any] | Mapping[str, Any]) -> str:
    """A setting in words, such as `digits, dirichlet, α 0.1, 5 clients, epochs 5`."""
    labels = axis_labels([key for key in setting if key and "." in key])
    told = []
    for key, value in setting.items():
        if value is None or (key == "partition" and value == POOLED and len(setting) > 1):
            continue
        text = short(value)
        if key == ALPHA:
            told.append(f"α {text}")
        elif key == "clients":
            told.append("1 client" if text == "1" else f"{text} clients")
        else:
            told.append(f"{labels.get(str(key), '')} {text}".strip())
    return ", ".join(told)


def _accuracy(line: Line) -> float:
    values = line.values("final")
    return float(sum(values) / len(values))
