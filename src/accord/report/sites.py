"""The table of sites: how good each model is for each site, beside the site's own net."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from accord.core.errors import AccordError
from accord.core.names import shown
from accord.record.rows import Row
from accord.record.site_rows import FIGURES, REFERENCES, same_setting
from accord.report.comparison import percent, rank, seeds_of, short, spread
from accord.report.tables import drop_columns, plain_table

Line = dict[str, Any]

NUMBERS = (
    *("seeds", "images", "accuracy %", "balanced %", "worst class %", "ECE %"),
    *("alone %", "central %"),
)
# Columns that a narrow terminal leaves out, in this order.
DISPENSABLE = ("ECE %", "worst class %", "balanced %", "seeds", "central %", "images", "alone %")

MOST = 10  # names of sites in the remark below a table


def show_sites(rows: Sequence[Row], title: str, width: int) -> list[Table]:
    """One table per setting, with a line for each recipe, fusion and site."""
    if not rows:
        raise AccordError(
            "this run has no held-out images of single sites, so it cannot say how good a model is "
            "for each site. Hold out some images of each client with data.test_per_client, or use "
            "images whose test part has the column that partition.column names, and run the study "
            "into another folder with --out."
        )
    return [_table(lines, title, width) for lines in settings(rows)]


def settings(rows: Sequence[Row]) -> list[list[Line]]:
    """The lines of each setting, for all seeds together, at the last epoch of each trial.

    A reference belongs to each setting that differs from its own only in keys that it does not use.
    """
    last: dict[str, int] = defaultdict(int)
    for row in rows:
        last[row["trial"]] = max(last[row["trial"]], row["epoch"])
    final = [row for row in rows if row["epoch"] == last[row["trial"]]]
    references = [row for row in final if row["recipe"] in REFERENCES.values()]
    others = [row for row in final if row["recipe"] not in REFERENCES.values()]
    tables: dict[tuple[str, ...], list[Row]] = defaultdict(list)
    for row in others or references:
        tables[tuple(map(str, _setting(row).values()))].append(row)
    for found in tables.values() if others else ():
        found += [row for row in references if same_setting(found[0], row)]
    return [_lines(found) for found in tables.values()]


def _setting(row: Row) -> Row:
    """The part of a row that is the same for all lines of a table."""
    axes = {key: value for key, value in row.items() if "." in key}
    return {key: row[key] for key in ("dataset", "partition", "alpha", "clients")} | axes


def _lines(rows: Sequence[Row]) -> list[Line]:
    """The best recipe first and the references last; of each recipe, the worst site first."""
    groups: dict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in rows:
        groups[row["recipe"], row["fusion"], row["site"]].append(row)
    lines = [_line(group) for group in groups.values()]
    means: dict[tuple[str, str], list[float]] = defaultdict(list)
    for line in lines:
        means[line["recipe"], line["fusion"]] += line["accuracy"]

    def order(line: Line) -> tuple[Any, ...]:
        values = means[line["recipe"], line["fusion"]]
        mean = statistics.mean(values) if values else 0.0
        own = statistics.mean(line["accuracy"]) if line["accuracy"] else 2.0  # unknown: at the end
        return (*rank(line, mean), line["recipe"], line["fusion"], own)

    return sorted(lines, key=order)


def _line(rows: Sequence[Row]) -> Line:
    seeds = seeds_of(rows)
    figures = {
        key: [row[key] for row in rows if row[key] is not None] for key in (*FIGURES, *REFERENCES)
    }
    images = sorted({row["images"] for row in rows})
    took_part = any(row["took_part"] for row in rows)
    return {**rows[0], **figures, "seeds": seeds, "images": images, "took_part": took_part}


def _table(lines: list[Line], title: str, width: int) -> Table:
    columns = {name: [text(line) for line in lines] for name, text in _columns(lines).items()}
    left_out = drop_columns(columns, DISPENSABLE, width)
    said = [spread({len(line["seeds"]) for line in lines})]
    if left_out:
        said.append(f"in sites.csv: {', '.join(name.removesuffix(' %') for name in left_out)}")
    if any(len(line["images"]) > 1 for line in lines):
        said.append("a site has other images for another seed")
    unknown = dict.fromkeys(shown(x["site"]) for x in lines if not any(x["images"]))
    if unknown:
        more = f" and {len(unknown) - MOST} more" if len(unknown) > MOST else ""
        said.append(f"without held-out images: {', '.join([*unknown][:MOST])}{more}")
    return plain_table(
        list(columns),
        zip(*columns.values(), strict=True),
        numbers=NUMBERS,
        title=f"{title}: {_told(lines[0])}",
        caption="; ".join(said),
    )


def _told(line: Line) -> str:
    """The setting of a table in words."""
    words = {"alpha": "α {}", "clients": "{} sites"}  # also those that took no part
    return ", ".join(
        words.get(key, "{}" if "." not in key else f"{key} {{}}").format(short(value))
        for key, value in _setting(line).items()
        if value is not None
    )


def _columns(lines: list[Line]) -> dict[str, Callable[[Line], str]]:
    """Heading of a column → the text of a line in this column."""
    columns: dict[str, Callable[[Line], str]] = {
        "recipe (fusion)": lambda line: f"{line['recipe']} ({line['fusion']})",
        "site": lambda line: shown(line["site"]) + ("" if line["took_part"] else " (took no part)"),
    }
    if len({len(line["seeds"]) for line in lines}) > 1:
        columns["seeds"] = lambda line: str(len(line["seeds"]))
    columns["images"] = lambda line: _range(line["images"])
    columns["accuracy %"] = lambda line: percent(line["accuracy"])
    columns["balanced %"] = lambda line: percent(line["balanced_accuracy"])
    columns["worst class %"] = lambda line: percent(line["worst_class"])
    columns["ECE %"] = lambda line: percent(line["ece"])
    if any(line["local_accuracy"] for line in lines):
        columns["alone %"] = lambda line: percent(line["local_accuracy"])
    if any(line["central_accuracy"] for line in lines):
        columns["central %"] = lambda line: percent(line["central_accuracy"])
    return columns


def _range(images: list[int]) -> str:
    """A number of images; the smallest and the largest if it differs between seeds."""
    return f"{images[0]}" if len(images) == 1 else f"{images[0]}–{images[-1]}"
