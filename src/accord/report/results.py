"""The results of a record, as a table, a DataFrame or JSON."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.table import Table

from accord.core.errors import AccordError
from accord.core.text import json_text
from accord.record.record import Record
from accord.record.rows import COLUMNS, Row
from accord.record.site_rows import SITE_COLUMNS
from accord.report.comparison import comparison
from accord.report.dials import events_of

if TYPE_CHECKING:
    import pandas


@dataclass(frozen=True)
class Results:
    """The results of a run so far. A notebook shows them as a table."""

    path: Path
    rows: list[Row]
    failures: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def of(cls, record: Record) -> Results:
        rows = record.rows()
        infos = {trial.id: trial.info() for trial in record.trials()}
        failed = {
            name: [str(reason) for reason in info.get("failures", [])]
            for name, info in infos.items()
            if info.get("status") == "failed"
        }
        measured = {row["trial"] for row in rows}
        for name, info in infos.items():
            if info.get("status") == "finished" and name not in measured:
                failed[name] = ["its measures.json is missing: run the study again to measure it"]
        return cls(record.path, rows, failed)

    @property
    def record(self) -> Record:
        return Record(self.path)

    def events(self) -> list[dict[str, Any]]:
        """The telemetry of every client in every epoch, with its `trial`."""
        return [
            {"trial": trial.id, **event}
            for trial in self.record.trials()
            for event in events_of(trial)
        ]

    def sites(self) -> list[Row]:
        """The rows of sites.csv: the figures of each site on its own held-out images."""
        return self.record.site_rows()

    def frame(self) -> pandas.DataFrame:
        """The rows as a pandas DataFrame."""
        return _frame(self.rows, COLUMNS)

    def site_frame(self) -> pandas.DataFrame:
        """The rows of `sites` as a pandas DataFrame."""
        return _frame(self.sites(), SITE_COLUMNS)

    def to_json(self) -> str:
        content = {"path": str(self.path), "rows": self.rows, "failures": self.failures}
        return json_text(content)

    def sites_to_json(self) -> str:
        content = {"path": str(self.path), "rows": self.sites()}
        return json_text(content)

    def table(self, width: int = 160) -> Table:
        """Mean ± standard deviation over seeds, for every setting, recipe and fusion."""
        return comparison(self.rows, str(self.path), width)

    def __str__(self) -> str:
        console = Console(width=160, no_color=True)
        with console.capture() as captured:
            console.print(self.table(console.width))
        return captured.get()

    def _repr_html_(self) -> str:
        return str(self.frame()._repr_html_())  # type: ignore[operator]


def _frame(rows: list[Row], columns: Sequence[str]) -> pandas.DataFrame:
    try:
        import pandas
    except ImportError:
        raise AccordError("the DataFrame view needs pandas: pip install pandas.") from None
    extra = [key for row in rows for key in row if key not in columns]
    return pandas.DataFrame(rows, columns=[*columns, *dict.fromkeys(extra)])


def load(run_dir: Path | str) -> Results:
    """The results of a run directory."""
    return Results.of(open_record(Path(run_dir)))


def open_record(path: Path) -> Record:
    """The record of a run. If there is no such folder, the message lists the known runs."""
    if not path.is_dir():
        known = [p.parent.name for p in sorted(Path("runs").glob("*/study.yaml"))]
        runs = f" In runs/ there are: {', '.join(known)}." if known else ""
        raise AccordError(f"{path} is not a run directory: there is no such folder.{runs}")
    return Record(path)
