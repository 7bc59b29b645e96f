"""Prints tables and results, for a terminal or as plain text for a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from accord.core.text import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from accord.report.results import Results


def show_results(results: Results) -> None:
    if results.rows:
        show(results.table(width()))
    for trial, reasons in results.failures.items():
        for reason in reasons:
            print(printable(f"failed: {trial}: {reason}"))
    print(f"record: {results.path}")


def show(*parts: RenderableType) -> None:
    """Prints `parts`; in a pipe, as plain text without trailing spaces."""
    out = _console()
    if sys.stdout.isatty():
        for part in parts:
            out.print(part)
        return
    with out.capture() as captured:
        for part in parts:
            out.print(part)
    print("\n".join(line.rstrip() for line in captured.get().rstrip().splitlines()))


def width() -> int:
    """The width of the terminal in characters; 200 in a pipe."""
    return _console().width


def tell(line: str) -> None:
    """Prints a line that is no result, such as a warning."""
    print(printable(line), file=sys.stderr)


def _console() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200, no_color=True)
