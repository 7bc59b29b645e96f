"""Accuracy over epochs or rounds, and the baseline beside other recipes at each checkpoint."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from accord.core.names import shown
from accord.page.course import Point, course_of
from accord.page.differences import signed
from accord.page.figures.curves import Curve, Level, curves
from accord.page.figures.style import MOST, keys_for
from accord.page.grid import Place, places_of
from accord.page.parts import Cell, Column, Figure, Key, Panel, Part, Table
from accord.page.section import section
from accord.page.subject import Subject, is_reference, name_of
from accord.report.compare.lines import Line

CANDIDATES = 4  # recipes beside the baseline in the table
PANELS = 12


@section("course", "Accuracy over training", 40)
def course(subject: Subject) -> list[Part]:
    places = [place for place in places_of(subject) if _moves(subject, place)]
    if not places:
        return []
    return [_figure(subject, places), *_tables(subject, places)]


def _moves(subject: Subject, place: Place) -> bool:
    """Whether some line was measured more than once."""
    return any(len(course_of(subject, line)) > 1 for line in place.own)


def _chosen(place: Place) -> list[Line]:
    """As many lines as a figure has colours: the best ones and the baseline."""
    ranked = sorted(place.own, key=lambda line: -statistics.fmean(line.values("final")))
    first = [pair.line for pair in place.pairs if pair.is_baseline and not is_reference(pair.line)]
    return list({id(line): line for line in [*first, *ranked]}.values())[:MOST]


def _figure(subject: Subject, places: Sequence[Place]) -> Figure:
    names = list(dict.fromkeys(name_of(line) for place in places for line in _chosen(place)))
    keys = dict(zip(names, keys_for([shown(name) for name in names]), strict=True))
    panels: list[Panel] = []
    words: list[str] = []
    for place in places[:PANELS]:
        for unit in ("epoch", "round"):
            found = {
                name_of(line): course_of(subject, line, unit)
                for line in _chosen(place)
                if _unit(subject, place, line) == unit
            }
            found = {name: points for name, points in found.items() if points}
            if found:
                series = [_curve(keys[name], points) for name, points in found.items()]
                levels = _levels(place)
                panels.append(
                    curves(series, unit, "accuracy in %", title=place.short, levels=levels)
                )
                words.append(_words(place, unit, found))
    rest = f" Further settings, not drawn: {len(places) - PANELS}." if len(places) > PANELS else ""
    more = sum(max(0, len(place.own) - MOST) for place in places)
    rest += f" Lines of lower accuracy, not drawn: {more}." if more else ""
    caption = (
        "Test accuracy of the fused model: mean over seeds, with a band of ± one standard "
        f"deviation. Dashed grey lines: final accuracy of the references.{rest}"
    )
    used: list[Key] = [keys[name] for name in names]
    return Figure(panels, " ".join(words), caption, used)


def _unit(subject: Subject, place: Place, line: Line) -> str:
    """The unit in which a line is drawn: one exchange is a point beside the lines of rounds."""
    several = any(other.unit == "round" for other in _chosen(place))
    return "round" if several and len(course_of(subject, line)) == 1 else line.unit


def _curve(key: Key, points: Sequence[Point]) -> Curve:
    mean = [100 * point.mean for point in points]
    band = any(len(point.values) > 1 for point in points)
    low = [100 * (point.mean - point.deviation) for point in points] if band else []
    high = [100 * (point.mean + point.deviation) for point in points] if band else []
    return Curve(key, [point.at for point in points], mean, low, high)


def _levels(place: Place) -> list[Level]:
    references = [line for line in place.lines if is_reference(line)]
    return [
        Level(
            line.recipe if line.recipe == "central" else f"{line.recipe} ({line.fusion})",
            100 * statistics.fmean(line.values("final")),
        )
        for line in references
    ]


def _words(place: Place, unit: str, found: dict[str, list[Point]]) -> str:
    told = []
    for name, points in found.items():
        first, last = (f"{100 * p.mean:.1f} % at {unit} {p.at}" for p in (points[0], points[-1]))
        told.append(f"{name} from {first} to {last}" if len(points) > 1 else f"{name} {first}")
    return f"Accuracy over {unit}s, {place.words}: {'; '.join(told)}."


def _tables(subject: Subject, places: Sequence[Place]) -> list[Table]:
    """Setting × checkpoint: the baseline, each candidate, and its difference."""
    base = {
        id(place): next((pair.line for pair in place.pairs if pair.is_baseline), None)
        for place in places
    }
    with_base = [place for place in places if base[id(place)] is not None]
    candidates = _candidates(subject, with_base)
    if not with_base or not candidates:
        return []
    columns = [Column("setting")] if len(with_base) > 1 else []
    columns += [Column("at", number=True), Column("baseline %", number=True)]
    for name in candidates:
        columns.append(Column(f"{shown(name)} %", number=True))
    rows = []
    for place in with_base:
        line = base[id(place)]
        assert line is not None
        for point in course_of(subject, line):
            setting = [Cell(place.short)] if len(with_base) > 1 else []
            rows.append([*setting, *_row(subject, place, line, point, candidates)])
    notes = [
        f"Baseline: {shown(subject.baseline)}. Accuracy in percent, mean over seeds, at each "
        "measured epoch (e) or round (r). Small: difference to the baseline in points, of equal "
        "seeds."
    ]
    where = f": {with_base[0].words}" if len(with_base) == 1 else ""
    title = f"At each checkpoint{where}"
    return [Table(columns, rows, title=title, notes=notes)]


def _candidates(subject: Subject, places: Sequence[Place]) -> list[str]:
    """The best lines that are neither baseline nor reference, and were measured more than once."""
    found: dict[str, list[float]] = {}
    for place in places:
        for pair in place.pairs:
            if pair.is_baseline or is_reference(pair.line) or pair.other is None:
                continue
            if len(course_of(subject, pair.line)) > 1:
                found.setdefault(name_of(pair.line), []).extend(pair.line.values("final"))
    return sorted(found, key=lambda name: -statistics.fmean(found[name]))[:CANDIDATES]


def _row(
    subject: Subject, place: Place, line: Line, point: Point, candidates: Sequence[str]
) -> list[Cell]:
    cells = [
        Cell(f"{point.at} {line.unit[0]}", point.at),
        Cell(f"{100 * point.mean:.1f}", point.mean),
    ]
    for name in candidates:
        other = next((one for one in place.own if name_of(one) == name), None)
        same = _at(subject, other, line.unit, point.at) if other else None
        both = [seed for seed in point.values if same and seed in same.values]
        if same is None or not both:
            cells.append(Cell("–"))
            continue
        gap = statistics.fmean(same.values[seed] - point.values[seed] for seed in both)
        cells.append(Cell(f"{100 * same.mean:.1f}", same.mean, under=signed(gap)))
    return cells


def _at(subject: Subject, line: Line, unit: str, at: int) -> Point | None:
    if line.unit != unit:
        return None
    return next((point for point in course_of(subject, line) if point.at == at), None)
