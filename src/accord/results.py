"""Results: the rows of a record, and the table people read."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from accord.errors import AccordError
from accord.record import COLUMNS, Record, Row
from accord.tables import plain_table

if TYPE_CHECKING:
    import pandas

# Columns that tell one line of the table from another; seeds are averaged over.
MEASURED = [
    "accuracy",
    "balanced_accuracy",
    "worst_class",
    "ece",
    "validation_accuracy",
    "loss",
    "upload_bytes",
    "download_bytes",
    "seconds",
]


@dataclass(frozen=True)
class Results:
    """What a run has found so far. In a notebook it shows as a table."""

    path: Path
    rows: list[Row]
    failures: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Record) -> Results:
        record.asked()
        infos = [trial.info() for trial in record.trials()]
        failed = {info["id"]: info["failures"] for info in infos if info.get("status") == "failed"}
        return cls(record.path, record.rows(), failed)

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame."""
        try:
            import pandas
        except ImportError:
            raise AccordError(
                "the DataFrame view needs pandas: pip install 'accord[notebook]'."
            ) from None
        extra = [key for row in self.rows for key in row if key not in COLUMNS]
        return pandas.DataFrame(self.rows, columns=[*COLUMNS, *dict.fromkeys(extra)])

    def to_json(self) -> str:
        content = {"path": str(self.path), "rows": self.rows, "failures": self.failures}
        return json.dumps(content, indent=1, ensure_ascii=False)

    def lines(self) -> list[dict[str, Any]]:
        """One line per setting, recipe and fusion at its last epoch: mean and spread over seeds."""
        last: dict[str, int] = defaultdict(int)
        for row in self.rows:
            last[row["trial"]] = max(last[row["trial"]], row["epoch"])
        groups: dict[tuple[Any, ...], list[Row]] = defaultdict(list)
        for row in self.rows:
            if row["epoch"] == last[row["trial"]]:
                groups[self._setting(row)].append(row)
        found = [_averaged(rows) for rows in groups.values()]
        return sorted(found, key=_order)

    def _setting(self, row: Row) -> tuple[Any, ...]:
        ignored = {*MEASURED, "seed", "trial"}
        return tuple(str(value) for key, value in row.items() if key not in ignored)

    def table(self) -> Table:
        lines = self.lines()
        seeds = max((len(line["seeds"]) for line in lines), default=0)
        caption = (
            f"mean ± standard deviation over {seeds} seeds"
            if seeds > 1
            else "one seed: no spread, and no proof"
        )
        axes = [key for key in (lines[0] if lines else {}) if "." in key]
        names = ["dataset", "partition", "α", *axes, "recipe", "fusion"]
        numbers = ["epoch", "accuracy %", "balanced %", "worst %", "ECE %", "MB up", "seconds"]
        return plain_table(
            [*names, *numbers],
            [_cells(line, axes) for line in lines],
            numbers=["α", *numbers],
            title=str(self.path),
            caption=caption,
        )

    def __str__(self) -> str:
        console = Console(width=160, no_color=True)
        with console.capture() as captured:
            console.print(self.table())
        return captured.get()

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())  # type: ignore[operator]


def load(run_dir: Path | str) -> Results:
    """The results of a run directory."""
    path = Path(run_dir)
    if not path.is_dir():
        raise AccordError(f"{path} is not a run directory: there is no such folder.")
    return Results.of(Record(path))


def _averaged(rows: list[Row]) -> dict[str, Any]:
    line = {**rows[0], "seeds": [row["seed"] for row in rows]}
    for name in MEASURED:
        line[name] = [row[name] for row in rows if row[name] is not None]
    return line


def _order(line: dict[str, Any]) -> tuple[Any, ...]:
    """Settings together, bounds last, best first."""
    bound = {"local-only": 1, "central": 2}.get(line["recipe"], 0)
    pooled = line["partition"] == "pooled"
    alpha = line["alpha"] if line["alpha"] is not None else float("inf")
    axes = [str(value) for key, value in line.items() if "." in key]
    return (line["dataset"], pooled, -alpha, axes, bound, -statistics.mean(line["accuracy"]))


def _percent(values: list[float]) -> str:
    if not values:
        return "–"
    mean = f"{100 * statistics.mean(values):.1f}"
    return f"{mean} ± {100 * statistics.stdev(values):.1f}" if len(values) > 1 else mean


def _cells(line: dict[str, Any], axes: list[str]) -> list[str]:
    return [
        line["dataset"],
        line["partition"],
        "any" if line["partition"] == "pooled" else _short(line["alpha"]),
        *(_short(line[axis]) for axis in axes),
        line["recipe"],
        line["fusion"],
        str(line["epoch"]),
        _percent(line["accuracy"]),
        _percent(line["balanced_accuracy"]),
        _percent(line["worst_class"]),
        _percent(line["ece"]),
        f"{statistics.mean(line['upload_bytes']) / 1e6:.1f}",
        f"{statistics.mean(line['seconds']):.1f}",
    ]


def _short(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
