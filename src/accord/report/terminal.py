"""Prints tables and results, for a terminal or as plain text for a pipe."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

from accord.core.text import clean, json_text, printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from accord.report.results import Results


def show_results(results: Results) -> None:
    if results.rows:
        show(results.table(width()))
    for trial, reasons in results.failures.items():
        for reason in reasons:
            say(printable(f"failed: {trial}: {reason}"))
    say(f"record: {results.path}")


def say(text: str, end: str = "\n") -> None:
    """Prints lines of a result. They may hold names from users' files, so they are cleaned."""
    print(clean(text), end=end)


def say_json(value: Any) -> None:
    """Prints a result as JSON."""
    print(json_text(value))


def show(*parts: RenderableType) -> None:
    """Prints `parts`; in a pipe, as plain text without trailing spaces.

    A text is never interpreted as markup, and it cannot control a terminal.
    """
    out = _console()
    cleaned = [_cleaned(part) for part in parts]
    if sys.stdout.isatty():
        for part in cleaned:
            out.print(part, markup=False, emoji=False)
        return
    with out.capture() as captured:
        for part in cleaned:
            out.print(part, markup=False, emoji=False)
    say("\n".join(line.rstrip() for line in captured.get().rstrip().split("\n")))


def _cleaned(part: RenderableType) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    if isinstance(part, Group):
        return Group(*map(_cleaned, part.renderables))
    if isinstance(part, str):
        return clean(part)
    if isinstance(part, Text):
        part.plain = clean(part.plain)
    return part


def width() -> int:
    """The width of the terminal in characters; 200 in a pipe."""
    return _console().width


def tell(line: str) -> None:
    """Prints a line that is no result, such as a warning."""
    print(clean(line), file=sys.stderr)


def _console() -> Console:
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200, no_color=True)
