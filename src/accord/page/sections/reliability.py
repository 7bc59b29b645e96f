"""Reliability diagrams: how often a model is right when it says that it is sure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from accord.core.names import shown
from accord.page.figures.curves import Curve, curves
from accord.page.figures.style import MOST, keys_for
from accord.page.grid import Place, places_of
from accord.page.parts import Figure, Key, Panel, Part
from accord.page.section import section
from accord.page.subject import Subject, is_reference, name_of
from accord.report.compare.lines import Line

Bin = tuple[float, float, float]  # count, mean confidence, accuracy
PANELS = 6


@section("reliability", "Reliability", 100)
def reliability(subject: Subject) -> list[Part]:
    panels: list[Panel] = []
    words: list[str] = []
    known = [(place, _known(subject, place)) for place in places_of(subject)]
    known = [(place, found) for place, found in known if found]
    names = list(dict.fromkeys(name for _, found in known[:PANELS] for name in found))
    keys = dict(zip(names, keys_for([shown(name) for name in names]), strict=True))
    for place, found in known[:PANELS]:
        series = [_curve(keys[name], bins) for name, bins in found.items()]
        series.append(Curve(Key("", None, ":"), [0, 100], [0, 100]))
        panels.append(
            curves(series, "confidence in %", "accuracy in %", title=place.short, bounds=(0, 102))
        )
        words.append(_words(place, found))
    if not panels:
        return []
    caption = (
        "Of the test images about which a model is equally sure, the share that it gets right; 15 "
        "bins, all seeds together, bins with at least 5 images. On the dotted line, a model is as "
        "often right as it says; below it, it is too sure."
    )
    return [Figure(panels, " ".join(words), caption, list(keys.values()))]


def _known(subject: Subject, place: Place) -> dict[str, list[Bin]]:
    """The best lines of a setting with their bins."""
    ranked = sorted(
        place.lines, key=lambda one: (is_reference(one), -statistics.fmean(one.values("final")))
    )
    found = {name_of(line): _bins(subject, line) for line in ranked}
    return dict([(name, bins) for name, bins in found.items() if bins][:MOST])


def _bins(subject: Subject, line: Line) -> list[Bin]:
    """The bins of all seeds together."""
    every = []
    for trial in subject.trials_of(line).values():
        measured = (trial.final or {}).get("fusions", {}).get(line.fusion, {})
        bins = measured.get("reliability")
        if isinstance(bins, list) and all(_is_bin(one) for one in bins):
            every.append(bins)
    if not every or len({len(bins) for bins in every}) > 1:
        return []
    return [_joined(group) for group in zip(*every, strict=True)]


def _is_bin(one: object) -> bool:
    return isinstance(one, list) and len(one) == 3 and all(isinstance(x, int | float) for x in one)


def _joined(bins: Sequence[Sequence[float]]) -> Bin:
    count = sum(one[0] for one in bins)
    if not count:
        return 0, 0.0, 0.0
    means = [sum(one[0] * one[place] for one in bins) / count for place in (1, 2)]
    return count, means[0], means[1]


def _curve(key: Key, bins: Sequence[Bin]) -> Curve:
    full = [one for one in bins if one[0] >= 5]
    return Curve(key, [100 * one[1] for one in full], [100 * one[2] for one in full])


def _words(place: Place, found: dict[str, list[Bin]]) -> str:
    told = []
    for name, bins in found.items():
        total = sum(one[0] for one in bins) or 1
        error = sum(one[0] * abs(one[1] - one[2]) for one in bins) / total
        told.append(f"{name} {100 * error:.1f} %")
    return f"Mean distance of confidence and accuracy, {place.words}: {'; '.join(told)}."
