"""The result of a benchmark: a measured figure and its target."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rich.console import Console

from accord.report.tables import plain_table


@dataclass(frozen=True)
class Figure:
    """A measured figure; `holds` is None if it has no target."""

    name: str
    measured: str
    target: str = ""
    holds: bool | None = None

    @property
    def verdict(self) -> str:
        return "" if self.holds is None else "holds" if self.holds else "MISSED"


def show(figures: Iterable[Figure]) -> None:
    rows = [(figure.name, figure.measured, figure.target, figure.verdict) for figure in figures]
    # The width is fixed, so that a table that is written to a file is not folded at 80 columns.
    Console(width=120).print(plain_table(("benchmark", "measured", "target", "verdict"), rows))
