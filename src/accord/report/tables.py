"""Plain tables, whose cells are never interpreted as markup. A cell may be a styled text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from accord.core.text import clean


def plain_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[str | Text]],
    *,
    numbers: Sequence[str] = (),
    title: str | None = None,
    caption: str | None = None,
) -> Table:
    """A table; the columns in `numbers` are aligned to the right."""
    table = Table(
        title=_text(title) if title else None,
        caption=_text(caption) if caption else None,
        title_justify="left",
        min_width=len(title) + 2 if title else None,  # so that the title is on one line
        caption_justify="left",
        box=box.SIMPLE,
    )
    for name in columns:
        number = name in numbers
        table.add_column(_text(name), justify="right" if number else "left", no_wrap=number)
    for row in rows:
        table.add_row(*map(_text, row))
    return table


def _text(given: str | Text) -> Text:
    """A text that cannot control a terminal; it may hold names from users' data."""
    if isinstance(given, Text):
        given.plain = clean(given.plain)
        return given
    return Text(clean(given))


def drop_columns(
    columns: dict[str, list[str]], dispensable: Iterable[str], width: int
) -> list[str]:
    """Removes columns, in the order of `dispensable`, until a table fits; returns their names."""
    removed = []
    for name in dispensable:
        wide = sum(3 + max(map(len, (key, *cells))) for key, cells in columns.items()) > width
        if wide and name in columns:
            del columns[name]
            removed.append(name)
    return removed
