"""The figure of the results: the accuracy of every recipe, seed by seed."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from accord.page.figures.strips import Group, strip
from accord.page.grid import Place
from accord.page.parts import Figure
from accord.page.subject import is_reference, name_of
from accord.report.compare.lines import Line

PLACES, LINES = 6, 24


def headline_figure(places: Sequence[Place]) -> Figure:
    """One panel per setting, the most accurate recipe at the top and the references below."""
    panels, words = [], []
    for place in places[:PLACES]:
        lines = sorted(place.lines, key=_order)[:LINES]
        groups = [
            Group(
                name_of(line),
                [100 * value for value in line.values("final")],
                grey=is_reference(line),
                strong=line is place.best,
            )
            for line in lines
        ]
        title = place.short if len(places) > 1 else ""
        panels.append(strip(groups, "test accuracy in %", title=title))
        told = [f"{group.name} {statistics.fmean(group.values):.1f} %" for group in groups]
        words.append(f"Mean accuracy, {place.words}: {'; '.join(told)}.")
    hidden = len(places) - len(panels)
    rest = f" Further settings: {hidden}." if hidden else ""
    caption = (
        "Large dot: mean; short strokes: the seeds. Orange: the highest mean; grey diamonds: "
        f"references.{rest}"
    )
    return Figure(panels, " ".join(words), caption, wide=True)


def _order(line: Line) -> tuple[bool, float]:
    return is_reference(line), -statistics.fmean(line.values("final"))
