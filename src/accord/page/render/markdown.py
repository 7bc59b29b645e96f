"""The tables of a report as Markdown (GitHub's dialect)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from accord.core.text import one_line
from accord.page.parts import Box, Cell, Code, Item, Items, Part, Prose, Section, Table

MARK = "<!-- accord report -->"
SPECIAL = re.compile(r"([\\`*_{}\[\]#|~$!])")


def to_markdown(title: str, sections: Sequence[Section]) -> str:
    """Headings, tables, findings and remarks; figures are left out."""
    told = [MARK, f"# {escape(title)}"]
    for section in sections:
        parts = [text for part in section.parts for text in _part(part)]
        if parts:
            told += [f"## {escape(section.title)}", *parts]
    return "\n\n".join(told) + "\n"


def escape(text: str) -> str:
    """One line that Markdown shows as it is: no markup, no HTML, no new cell of a table."""
    text = one_line(text, 2000).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return SPECIAL.sub(r"\\\1", text)


def _part(part: Part) -> Iterator[str]:
    if isinstance(part, Table):
        yield from _table(part)
    elif isinstance(part, Prose):
        yield escape(part.text)
    elif isinstance(part, Box):
        yield "\n".join([f"**{escape(part.title)}**", "", *(f"- {escape(x)}" for x in part.lines)])
    elif isinstance(part, Items):
        yield "\n".join(f"{n}. {_item(item)}" for n, item in enumerate(part.items, 1))
    elif isinstance(part, Code):
        yield _fenced(part.text)


def _table(table: Table) -> Iterator[str]:
    if table.title:
        yield f"**{escape(table.title)}**"
    lines = [
        _row(escape(column.heading) for column in table.columns),
        _row("---:" if column.number else "---" for column in table.columns),
        *(_row(_cell(cell) for cell in row) for row in table.rows),
    ]
    yield "\n".join(lines)
    if table.notes:
        yield "  \n".join(escape(note) for note in table.notes)


def _row(cells: Iterator[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = f"**{escape(cell.text)}**" if cell.strong else escape(cell.text)
    tied = " ≈" if cell.tied else ""
    under = cell.under if cell.under[:1] in ("[", "") else f"({cell.under})"
    return " ".join(filter(None, [f"{text}{tied}", escape(under)]))


def _item(item: Item) -> str:
    told = [f"**{escape(item.title)}**", *(escape(line) for line in item.lines)]
    if item.code:
        told.append(_inline(item.code))
    return "<br>".join(told)


def _inline(code: str) -> str:
    """Code between more backticks than it holds itself."""
    code = one_line(code)
    ticks = "`" * (max((len(run) for run in re.findall("`+", code)), default=0) + 1)
    return f"{ticks} {code} {ticks}"


def _fenced(code: str) -> str:
    ticks = "`" * max(3, *(len(run) + 1 for run in re.findall("`+", code)), 3)
    lines = [one_line(line, 2000) if line.strip() else "" for line in code.split("\n")]
    return "\n".join([ticks, *lines, ticks])
