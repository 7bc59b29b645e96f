"""Results: the rows of a record, and the table people read."""

from __future__ import annotations

import json
import statistics
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from accord.errors import AccordError
from accord.record import COLUMNS, MEASURED, Record, Row
from accord.tables import plain_table

if TYPE_CHECKING:
    import pandas

NUMBERS = ("α", "epoch", "accuracy %", "balanced %", "worst %", "ECE %", "MB up", "seconds")
DISPENSABLE = ("seconds", "MB up", "ECE %", "epoch", "worst %", "balanced %")  # the first go first


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
        """What tells one line of the table from another; seeds are averaged over."""
        ignored = {*MEASURED, "seed", "trial"}
        return tuple(str(value) for key, value in row.items() if key not in ignored)

    def table(self, width: int = 160) -> Table:
        """What matters most, in at most `width` characters; results.csv has all of it."""
        lines = self.lines()
        federated = [line for line in lines if line["partition"] != "pooled"] or lines
        # What all lines share goes into the title.
        found = {key: {line[key] for line in federated} for key in ("dataset", "partition")}
        shared = {key: str(*values) for key, values in found.items() if len(values) == 1}
        columns = {
            name: [text(line) for line in lines]
            for name, text in _columns(lines).items()
            if name not in shared
        }
        for name in DISPENSABLE:
            if sum(3 + max(map(len, (key, *cells))) for key, cells in columns.items()) > width:
                columns.pop(name, None)
        return plain_table(
            list(columns),
            zip(*columns.values(), strict=True),
            numbers=NUMBERS,
            title=f"{self.path}: {', '.join(shared.values())}",
            caption=_caption(lines),
        )

    def __str__(self) -> str:
        console = Console(width=160, no_color=True)
        with console.capture() as captured:
            console.print(self.table(console.width))
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


def _caption(lines: list[dict[str, Any]]) -> str:
    seeds = max((len(line["seeds"]) for line in lines), default=0)
    if seeds > 1:
        return f"mean ± standard deviation over {seeds} seeds"
    return "one seed: no spread, and no proof"


def _columns(lines: list[dict[str, Any]]) -> dict[str, Callable[[dict[str, Any]], str]]:
    """Heading → the text of a line's cell."""
    axes = [key for key in (lines[0] if lines else {}) if "." in key]
    return {
        "dataset": lambda line: str(line["dataset"]),
        "partition": lambda line: str(line["partition"]),
        "α": lambda line: "any" if line["partition"] == "pooled" else _short(line["alpha"]),
        **{axis: lambda line, axis=axis: _short(line[axis]) for axis in axes},  # type: ignore[misc]
        "recipe": lambda line: str(line["recipe"]),
        "fusion": lambda line: str(line["fusion"]),
        "epoch": lambda line: str(line["epoch"]),
        "accuracy %": lambda line: _percent(line["accuracy"]),
        "balanced %": lambda line: _percent(line["balanced_accuracy"]),
        "worst %": lambda line: _percent(line["worst_class"]),
        "ECE %": lambda line: _percent(line["ece"]),
        "MB up": lambda line: f"{statistics.mean(line['upload_bytes']) / 1e6:.1f}",
        "seconds": lambda line: f"{statistics.mean(line['seconds']):.1f}",
    }


def _short(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
