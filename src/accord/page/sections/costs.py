"""Accuracy against the bytes of all uploads, and against core time."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace

from accord.core.names import shown
from accord.page.figures.curves import Dot, dots
from accord.page.figures.style import MOST, keys_for
from accord.page.grid import Place, places_of
from accord.page.parts import Figure, Key, Panel, Part
from accord.page.section import section
from accord.page.subject import Subject, name_of
from accord.report.compare.lines import Line
from accord.report.comparison import pooled

PLACES = 6
LINES = 2 * MOST  # lines of one panel


@section("costs", "Accuracy and cost", 90)
def costs(subject: Subject) -> list[Part]:
    places = places_of(subject)
    shown_places = places[:PLACES]
    names = list(dict.fromkeys(name_of(line) for p in shown_places for line in _lines(p)))
    keys = dict(zip(names, keys_for([shown(name) for name in names]), strict=True))
    panels: list[Panel] = []
    words: list[str] = []
    for place in shown_places:
        for key, unit, label in (
            ("upload_bytes", 1e6, "MB uploaded by all clients"),
            ("seconds", 1.0, "core seconds of training"),
        ):
            found = _dots(_lines(place), keys, key, unit)
            if found:
                title = place.short if len(places) > 1 else ""
                panels.append(dots(list(found.values()), label, "accuracy in %", title=title))
                words.append(_words(place, label, found))
    if not panels:
        return []
    rest = len(places) - len(shown_places)
    caption = "Mean over seeds; vertical lines: ± one standard deviation. Logarithmic x axes."
    caption += f" Further settings: {rest}." if rest else ""
    return [Figure(panels, " ".join(words), caption, [replace(k, line="") for k in keys.values()])]


def _lines(place: Place) -> list[Line]:
    """The lines with costs of their own: the net of the best client costs as much as all."""
    kept = [line for line in place.lines if line.fusion != "client-best"]
    return kept[:LINES]


def _dots(lines: Sequence[Line], keys: dict[str, Key], cost: str, unit: float) -> dict[str, Dot]:
    found = {}
    for line in lines:
        values = [value / unit for value in line.values(cost) if value > 0]
        if not values or (cost == "upload_bytes" and pooled(line.setting)):
            continue
        final = [100 * value for value in line.values("final")]
        spread = statistics.stdev(final) if len(final) > 1 else 0.0
        name = name_of(line)
        found[name] = Dot(keys[name], statistics.fmean(values), statistics.fmean(final), spread)
    return found


def _words(place: Place, label: str, found: dict[str, Dot]) -> str:
    told = [f"{name} {dot.y:.1f} % with {dot.x:,.3g}" for name, dot in found.items()]
    return f"Accuracy against {label}, {place.words}: {'; '.join(told)}."
