"""Accuracy per class of every recipe, and the confusion of the best recipe of each setting."""

from __future__ import annotations

from collections.abc import Sequence

from accord.core.names import shown
from accord.page.confusion import confusion_map, confusion_of, recalls
from accord.page.grid import Place, places_of
from accord.page.parts import Details, Part, Prose
from accord.page.section import section
from accord.page.subject import Subject, name_of
from accord.page.tables.heat import heat_map
from accord.report.compare.lines import Line

OPEN, ALL = 2, 12


@section("classes", "Classes", 70)
def classes(subject: Subject) -> list[Part]:
    parts: list[Part] = []
    places = [place for place in places_of(subject) if _known(subject, place)]
    for index, place in enumerate(places[:ALL]):
        about = _about(subject, place)
        parts += about if index < OPEN else [Details(place.words, about)]
    if len(places) > ALL:
        parts.append(Prose(f"Further settings: {len(places) - ALL}.", quiet=True))
    return parts


def _known(subject: Subject, place: Place) -> dict[str, list[list[float]]]:
    """Line → the sum of its confusion matrices over seeds, for lines with the same classes."""
    names = _classes(subject, place)
    found = {}
    for line in place.lines:
        same = all(trial.classes == names for trial in subject.trials_of(line).values())
        total = _total(subject, line) if same else []
        if total:
            found[name_of(line)] = total
    return found


def _total(subject: Subject, line: Line) -> list[list[float]]:
    matrices = [
        matrix
        for trial in subject.trials_of(line).values()
        if (matrix := confusion_of(trial, line.fusion))
    ]
    if not matrices or len({len(matrix) for matrix in matrices}) > 1:
        return []
    size = range(len(matrices[0]))
    return [[float(sum(m[row][column] for m in matrices)) for column in size] for row in size]


def _about(subject: Subject, place: Place) -> list[Part]:
    known = _known(subject, place)
    names = _classes(subject, place)
    values = [[recall or 0.0 for recall in recalls(matrix)] for matrix in known.values()]
    texts = [[_percent(r) for r in recalls(matrix)] for matrix in known.values()]
    parts: list[Part] = [
        heat_map(
            values, list(known), names, title=f"Accuracy per class in %: {place.words}",
            down="recipe (fusion)", across="class", texts=texts, highest=1.0,
            words=_worst(known, names),
        ),
        Prose(_worst(known, names), quiet=True),
    ]  # fmt: skip
    best = place.best
    if best is not None and name_of(best) in known:
        title = f"Confusion of {shown(name_of(best))}: {place.words}"
        parts.append(confusion_map(known[name_of(best)], names, title))
    return parts


def _classes(subject: Subject, place: Place) -> list[str]:
    for line in place.lines:
        for trial in subject.trials_of(line).values():
            if trial.classes:
                return trial.classes
    return []


def _percent(recall: float | None) -> str:
    return "–" if recall is None else f"{100 * recall:.0f}"


def _worst(known: dict[str, list[list[float]]], names: Sequence[str]) -> str:
    """The class that each of the first lines recognises worst."""
    told = []
    for line, matrix in list(known.items())[:3]:
        found = [(r, n) for r, n in zip(recalls(matrix), names, strict=False) if r is not None]
        if found:
            recall, name = min(found)
            told.append(f"{shown(line)}: {shown(name)} with {100 * recall:.0f} %")
    return f"Lowest accuracy of a class, over all seeds: {'; '.join(told)}." if told else ""
