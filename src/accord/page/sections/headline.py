"""The headline table: every recipe and fusion in every setting, with differences to a baseline."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from accord.core.names import shown
from accord.page.differences import between, interval, signed, to_baseline
from accord.page.figures.headline import headline_figure
from accord.page.grid import Grid, Place, grids_of
from accord.page.parts import Cell, Column, Part, Prose, Table
from accord.page.section import section
from accord.page.subject import Subject, is_reference, name_of
from accord.report.compare.baseline import Pair
from accord.report.compare.lines import Line
from accord.report.comparison import percent, rank, spread


@section("headline", "Results", 20)
def headline(subject: Subject) -> list[Part]:
    grids = grids_of(subject)
    if not grids:
        return [Prose("No trial is finished, so that there is no table of results yet.")]
    parts: list[Part] = [_table(grid, subject) for grid in grids]
    parts.append(headline_figure([place for grid in grids for place in grid.places]))
    return [*parts, *(Prose(text, quiet=True) for text in _remarks(subject))]


def _table(grid: Grid, subject: Subject) -> Table:
    names = _ordered(grid)
    against = shown(subject.baseline)
    columns = [Column("recipe (fusion)")]
    for place in grid.places:
        columns.append(Column(place.column, number=True))
        columns.append(Column("difference", number=True))
    rows = [
        [Cell(shown(name)), *(cell for place in grid.places for cell in _cells(place, name))]
        for name in names
    ]
    references = [_reference(grid, name) for name in names]
    apart = references.index(True) if any(references) and not all(references) else None
    counts = {len(line.seeds) for place in grid.places for line in place.lines}
    notes = [f"Accuracy on the test images in percent: {spread(counts)}."]
    notes.append(
        f"Difference to {against} in points, paired by seed, with its 95 % confidence interval "
        "(Student's t)."
    )
    if any(cell.tied for row in rows for cell in row):
        notes.append(
            "Bold: the highest mean. ≈: the confidence interval of its difference to the highest "
            "one holds 0."
        )
    return Table(columns, rows, title=grid.title, notes=notes, apart=apart)


def _ordered(grid: Grid) -> list[str]:
    """The names of the rows: references last, then by falling mean accuracy over the columns."""
    found: dict[str, list[Line]] = {}
    for place in grid.places:
        for line in place.lines:
            found.setdefault(name_of(line), []).append(line)

    def order(name: str) -> tuple[int, float]:
        lines = found[name]
        means = [statistics.fmean(line.values("final")) for line in lines]
        return rank(lines[0].setting, statistics.fmean(means))

    return sorted(found, key=order)


def _reference(grid: Grid, name: str) -> bool:
    return any(
        is_reference(line) for place in grid.places for line in place.lines if name_of(line) == name
    )


def _cells(place: Place, name: str) -> tuple[Cell, Cell]:
    """The accuracy and the difference of a line in one setting."""
    pair = next((pair for pair in place.pairs if name_of(pair.line) == name), None)
    if pair is None:
        return Cell("–"), Cell("–")
    values = pair.line.values("final")
    best = place.best
    tied = False
    if best is not None and pair.line is not best and not is_reference(pair.line):
        gap = between(pair.line, best)
        tied = gap is not None and gap.open
    accuracy = Cell(
        percent(values),
        statistics.fmean(values),
        strong=pair.line is best,
        tied=tied,
        under=_seeds(place.lines, pair.line),
    )
    return accuracy, _difference(pair)


def _seeds(lines: Sequence[Line], line: Line) -> str:
    """The number of seeds, if it is not the same for all lines."""
    if len({len(one.seeds) for one in lines}) == 1:
        return ""
    return "1 seed" if len(line.seeds) == 1 else f"{len(line.seeds)} seeds"


def _difference(pair: Pair) -> Cell:
    if pair.is_baseline:
        return Cell("baseline", 0.0)
    found = to_baseline(pair)
    if found is None:
        return Cell("–")
    fewer = found.pairs < len(pair.line.seeds)
    count = f", {found.pairs} pair{'s' if found.pairs > 1 else ''}" if fewer else ""
    return Cell(signed(found.mean), found.mean, under=f"{interval(found)}{count}")


def _remarks(subject: Subject) -> list[str]:
    """How the baseline was chosen, and what cannot be concluded."""
    told = []
    if subject.baseline and not subject.chosen:
        told.append(
            f"The baseline {shown(subject.baseline)} was chosen automatically; --baseline "
            "RECIPE:FUSION chooses another one."
        )
    if any(line.fusion == "client-best" for line in subject.lines):
        told.append(
            "client-best of local-only is chosen with the test labels: it is a reference and not "
            "a method."
        )
    if any(len(line.seeds) == 1 for line in subject.lines):
        told.append("A line with one seed has no confidence interval and is not conclusive.")
    return told
