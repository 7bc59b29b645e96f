"""The table of a run: a line per setting, recipe and fusion, with mean ± standard deviation."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from accord.core.errors import AccordError
from accord.record.rows import MEASURED, Row
from accord.report.tables import drop_columns, plain_table
from accord.study.coordinates import POOLED, is_pooled

Line = dict[str, Any]

NUMBERS = (
    *(
        "clients",
        "α",
        "seeds",
        "round",
        "epoch",
        "accuracy %",
        "balanced %",
        "worst %",
        "personal %",
    ),
    *("worst site %", "± sites %", "validation %", "ECE %", "MB up", "seconds"),
)
# Columns that a narrow terminal leaves out, in this order.
DISPENSABLE = (
    *("seconds", "MB up", "ECE %", "validation %", "epoch", "worst %", "± sites %"),
    *("personal %", "worst site %", "balanced %"),
)


def compare(rows: Sequence[Row]) -> list[Line]:
    """One line per setting, at its last epoch; each measured value is a list over seeds."""
    last: dict[str, int] = defaultdict(int)
    for row in rows:
        last[row["trial"]] = max(last[row["trial"]], row["epoch"])
    groups: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in rows:
        if row["epoch"] == last[row["trial"]]:
            setting = {k: v for k, v in row.items() if k not in (*MEASURED, "seed", "trial")}
            groups[tuple(map(str, setting.values()))].append(row)
    return sorted((_line(group) for group in groups.values()), key=_order)


def seeds_of(rows: Sequence[Row]) -> list[int]:
    """The seeds of the rows of one line, which must differ."""
    seeds = [row["seed"] for row in rows]
    if len(set(seeds)) < len(seeds):
        raise AccordError(
            f"the record holds two results of {rows[0]['recipe']}, seed {seeds[-1]}: "
            f"{', '.join(str(row['trial']) for row in rows)}. Remove one of these folders."
        )
    return seeds


def _line(rows: list[Row]) -> Line:
    seeds = seeds_of(rows)
    measured = {key: [row[key] for row in rows if row[key] is not None] for key in MEASURED}
    return {**rows[0], **measured, "seeds": seeds}


def _order(line: Line) -> tuple[Any, ...]:
    return place(line, statistics.mean(line["accuracy"]))


def place(line: Mapping[str, Any], accuracy: float) -> tuple[Any, ...]:
    """The order of lines: by setting, then references last, then by falling accuracy."""
    alpha = line["alpha"] if line["alpha"] is not None else float("inf")
    axes = [str(value) for key, value in line.items() if "." in key]
    setting = (line["dataset"], pooled(line), -alpha, line["clients"], axes)
    return (*setting, *rank(line, accuracy))


def rank(line: Mapping[str, Any], accuracy: float) -> tuple[int, float]:
    """The order of the lines of one setting."""
    reference = {"local-only": 1, "public-teacher": 2, "central": 3}.get(line["recipe"], 0)
    return reference, -accuracy


def comparison(rows: Sequence[Row], title: str, width: int) -> Table:
    """The most important columns, in at most `width` characters; results.csv has all columns."""
    lines = compare(rows)
    shared = shared_settings(lines)
    columns = {
        name: [text(line) for line in lines]
        for name, text in _columns(lines).items()
        if name not in shared
    }
    checkpoints = {(row["trial"], row["epoch"]) for row in rows}
    several = len(checkpoints) > len({row["trial"] for row in rows})
    left_out = ["earlier checkpoints"] if several else []
    left_out += [name.removesuffix(" %") for name in drop_columns(columns, DISPENSABLE, width)]
    return plain_table(
        list(columns),
        zip(*columns.values(), strict=True),
        numbers=NUMBERS,
        title=": ".join([title, *filter(None, [", ".join(shared.values())])]),
        caption=_caption(lines, left_out),
    )


def shared_settings(lines: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Values that are the same in all lines; they are in the title and not in a column."""
    federated = [line for line in lines if not pooled(line)] or lines
    words = {"dataset": "{}", "partition": "{}", "clients": "{} clients"}
    found = {key: {line[key] for line in federated} for key in words}
    return {key: words[key].format(*values) for key, values in found.items() if len(values) == 1}


def _columns(lines: list[Line]) -> dict[str, Callable[[Line], str]]:
    """Heading of a column → the text of a line in this column."""
    columns: dict[str, Callable[[Line], str]] = {
        "dataset": lambda line: str(line["dataset"]),
        "partition": lambda line: str(line["partition"]),
        "clients": lambda line: "–" if pooled(line) else str(line["clients"]),
        "α": lambda line: "any" if line["partition"] == POOLED else short(line["alpha"]),
    }
    if all(line["alpha"] is None for line in lines):
        del columns["α"]
    for axis in (key for key in (lines[0] if lines else {}) if "." in key):
        columns[axis] = lambda line, axis=axis: short(line[axis])  # type: ignore[misc]
    columns["recipe"] = lambda line: str(line["recipe"])
    columns["fusion"] = lambda line: str(line["fusion"])
    if len({len(line["seeds"]) for line in lines}) > 1:
        columns["seeds"] = lambda line: str(len(line["seeds"]))
    if any(line["round"] > 1 for line in lines):
        columns["round"] = lambda line: str(line["round"])
    columns["epoch"] = lambda line: str(line["epoch"])
    columns["accuracy %"] = lambda line: percent(line["accuracy"])
    columns["balanced %"] = lambda line: percent(line["balanced_accuracy"])
    columns["worst %"] = lambda line: percent(line["worst_class"])
    # The reference local-only always has this value; the column is for fusions with personal nets.
    if any(line["personal_accuracy"] and line["recipe"] != "local-only" for line in lines):
        columns["personal %"] = lambda line: percent(line["personal_accuracy"])
    if any(line["site_worst"] for line in lines):
        columns["worst site %"] = lambda line: percent(line["site_worst"])
        columns["± sites %"] = lambda line: percent(line["site_spread"])
    if any(line["validation_accuracy"] for line in lines):
        columns["validation %"] = lambda line: percent(line["validation_accuracy"])
    columns["ECE %"] = lambda line: percent(line["ece"])
    columns["MB up"] = lambda line: "–" if pooled(line) else _mean(_megabytes(line))
    columns["seconds"] = lambda line: _mean(line["seconds"])
    return columns


def pooled(line: Mapping[str, Any]) -> bool:
    """Whether all images are in one place, so that there are no uploads."""
    return is_pooled(line["partition"])


def _megabytes(line: Line) -> list[float]:
    return [size / 1e6 for size in line["upload_bytes"]]


def _caption(lines: list[Line], left_out: list[str]) -> str:
    said = spread({len(line["seeds"]) for line in lines})
    return f"in results.csv: {', '.join(left_out)}; {said}" if left_out else said


def spread(counts: set[int]) -> str:
    """What ± means, for lines with these numbers of seeds."""
    if not counts or max(counts) == 1:
        return "one seed: not conclusive"
    number = f"{max(counts)} seeds" if len(counts) == 1 else "the seeds of each line"
    return f"mean ± standard deviation over {number}"


def _mean(values: list[float]) -> str:
    return f"{statistics.mean(values):.1f}" if values else "–"


def percent(values: list[float]) -> str:
    if not values:
        return "–"
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


def short(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
