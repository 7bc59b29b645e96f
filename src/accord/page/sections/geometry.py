"""The prototypes of the clients: how far they are from an ETF, and from each other."""

from __future__ import annotations

import statistics

from accord.core.names import shown
from accord.page.figures.strips import Group, boxes
from accord.page.geometry import CLIENTS, Geometry, geometry_of
from accord.page.kinds import Kind, kinds_of
from accord.page.parts import Cell, Column, Figure, Part, Prose, Table
from accord.page.section import section
from accord.page.subject import Subject

MOST = 12  # recipes and settings


@section("geometry", "Geometry of the prototypes", 80)
def geometry(subject: Subject) -> list[Part]:
    found: list[tuple[Kind, Geometry]] = []
    for kind in kinds_of(subject):
        if len(found) == MOST:
            break
        shape = None if kind.first.pooled else geometry_of(kind.first)
        if shape is not None:
            found.append((kind, shape))
    if not found:
        return []
    parts: list[Part] = [_table(found)]
    for classes in dict.fromkeys(shape.classes for _, shape in found):
        parts.append(_figure([(k, s) for k, s in found if s.classes == classes]))
    if len(found) == MOST:
        parts.append(Prose(f"Only the first {MOST} recipes and settings are shown.", quiet=True))
    return parts


def _table(found: list[tuple[Kind, Geometry]]) -> Table:
    heads = (
        "recipe", "setting", "seed", "target", "cosine of two classes", "classes held", "furthest",
        "between clients",
    )  # fmt: skip
    rows = []
    for kind, shape in found:
        every = [value for values in shape.within.values() for value in values]
        held = [value for values in shape.held.values() for value in values]
        rows.append(
            [
                Cell(shown(kind.recipe)),
                Cell(kind.setting or "–"),
                Cell(f"{kind.first.seed}", kind.first.seed),
                _cosine([shape.target]),
                _cosine(every),
                _cosine(held),
                _cosine([_furthest(every, shape.target)]),
                _cosine(shape.between),
            ]
        )
    notes = [
        "Cosines, mean ± standard deviation over all pairs of the uploaded prototypes (rows of the "
        "classifier). Target: −1/(C−1), the cosine of all pairs in a simplex ETF of C classes. "
        "Classes held: pairs of classes that the client holds. Furthest: the pair that is furthest "
        "from the target. Between clients: the prototypes of the same class at two clients that "
        "both hold it; 1 means that they agree.",
    ]
    if any(len(shape.within) == CLIENTS for _, shape in found):
        notes.append(f"At most {CLIENTS} clients of a trial are read.")
    return Table([Column(h, number=i > 1) for i, h in enumerate(heads)], rows, notes=notes)


def _furthest(values: list[float], target: float) -> float:
    return max(values, key=lambda value: abs(value - target))


def _cosine(values: list[float]) -> Cell:
    if not values:
        return Cell("–")
    mean = statistics.fmean(values)
    text = f"{mean:.3f}"
    if len(values) > 1:
        text += f" ± {statistics.stdev(values):.3f}"
    return Cell(text.replace("-", "−"), mean)


def _figure(found: list[tuple[Kind, Geometry]]) -> Figure:
    groups = [
        Group(kind.words, [value for values in shape.within.values() for value in values])
        for kind, shape in found
    ]
    target = found[0][1].target
    told = "; ".join(
        f"{one.name}: median {statistics.median(one.values):.3f}, from {min(one.values):.3f} to "
        f"{max(one.values):.3f}"
        for one in groups
    )
    caption = (
        "Cosines of all pairs of classes at all clients: quartiles, lowest and highest value. "
        f"Dashed line: {target:.3f}, the cosine in a simplex ETF.".replace("-", "−")
    )
    panel = boxes(groups, "cosine of two prototypes of a client", level=target)
    return Figure([panel], f"Cosines of prototypes. {told}.", caption, wide=True)
