"""Accuracy over rounds, and the round in which a method reaches each one-shot recipe."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import Any

from rich.table import Table

from accord.core.errors import AccordError
from accord.record.rows import MEASURED, Row
from accord.report.tables import plain_table
from accord.study.coordinates import is_pooled

LABELS, CELL = 60, 8  # width of the labels and of one round, in characters
Curve = dict[int, float]  # round → accuracy, mean over seeds


def show_rounds(rows: Sequence[Row], width: int) -> list[Table]:
    """Two tables per setting: accuracy over rounds, and the rounds to reach one-shot recipes."""
    settings: dict[str, dict[str, Curve]] = defaultdict(dict)
    for (setting, name), group in _groups(rows).items():
        settings[setting][name] = _curve(group)
    if not any(max(curve) > 1 for curves in settings.values() for curve in curves.values()):
        raise AccordError(
            "no trial of this run has several rounds; see `accord results` without --rounds."
        )
    tables = []
    for setting, curves in settings.items():
        if any(max(curve) > 1 for curve in curves.values()):
            tables.append(_over_rounds(setting, curves, width))
            if any(max(curve) == 1 for curve in curves.values()):
                tables.append(_passing(curves))
    return tables


def passing_round(curve: Curve, other: Curve) -> int | None:
    """The first round in which `curve` reaches the final value of `other`, or None."""
    goal = other[max(other)]
    return next((number for number in sorted(curve) if curve[number] >= goal), None)


def _groups(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    """The rows of each setting, recipe and fusion, for all seeds together."""
    left_out = {*MEASURED, "study", "recipe", "fusion", "seed", "round", "epoch", "trial"}
    found: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in rows:
        setting = {key: value for key, value in row.items() if key not in left_out}
        if is_pooled(row["partition"]):
            # A pooled trial has no rounds, so it is not shown here.
            continue
        told = ", ".join(_told(key, value) for key, value in setting.items() if value is not None)
        found[told, f"{row['recipe']} ({row['fusion']})"].append(row)
    return found


def _told(key: str, value: Any) -> str:
    if key == "alpha":
        return f"α {value:g}"
    return f"{value} clients" if key == "clients" else f"{value}"


def _curve(rows: list[Row]) -> Curve:
    """The accuracy at the end of each round, averaged over seeds."""
    last: dict[tuple[int, int], Row] = {}
    for row in sorted(rows, key=lambda row: row["epoch"]):
        last[row["seed"], row["round"]] = row
    rounds = sorted({number for _, number in last})
    return {
        number: statistics.mean(row["accuracy"] for (_, r), row in last.items() if r == number)
        for number in rounds
    }


def _over_rounds(setting: str, curves: dict[str, Curve], width: int) -> Table:
    ends = {max(curve) for curve in curves.values()}
    rounds = _some(sorted({n for curve in curves.values() for n in curve}), ends, width)
    columns = [str(number) for number in rounds]
    ordered = sorted(curves.items(), key=lambda item: -item[1][max(item[1])])
    cells = [(name, *(_percent(curve.get(n)) for n in rounds)) for name, curve in ordered]
    title = f"{setting}: accuracy % after each round"
    return plain_table(("recipe (fusion)", *columns), cells, numbers=columns, title=title)


def _passing(curves: dict[str, Curve]) -> Table:
    """The rounds that each method needs to reach the final accuracy of each one-shot recipe."""
    several = [name for name, curve in curves.items() if max(curve) > 1]
    single = [name for name, curve in curves.items() if max(curve) == 1]
    single.sort(key=lambda name: curves[name][1])
    cells = []
    for name in single:
        needed = [passing_round(curves[other], curves[name]) for other in several]
        shown = [str(number) if number else "–" for number in needed]
        cells.append((name, _percent(curves[name][1]), *shown))
    columns = ("accuracy %", *several)
    return plain_table(
        ("one-shot recipe", *columns),
        cells,
        numbers=columns[:1],  # names of many recipes need several lines
        title="rounds until a method reaches each one-shot recipe",
        caption="–: not reached within the rounds of the study",
    )


def _percent(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f}"


def _some(rounds: list[int], ends: set[int], width: int) -> list[int]:
    """As many rounds as fit, at even distances, including the first and the last of each curve."""
    count = max(2, (width - LABELS) // CELL)
    if len(rounds) <= count:
        return rounds
    others = [number for number in rounds if number not in ends]
    room, last = max(count - len(ends), 1), len(others) - 1
    found = {others[round(index * last / max(room - 1, 1))] for index in range(room) if others}
    return sorted(found | ends)
