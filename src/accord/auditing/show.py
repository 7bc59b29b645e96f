"""Shows an audit in the terminal, as JSON, or as a warning in one line."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from rich.console import RenderableType
from rich.text import Text

from accord.auditing.audit import Audited
from accord.core.names import listed, shown
from accord.core.text import printable
from accord.report.tables import plain_table

MOST = 20  # clients in a table
NOTE = (
    "1 is a clear sign. A client that stands out need not be hostile: look at its images and labels"
    " first."
)


def show_audits(found: Sequence[Audited]) -> list[RenderableType]:
    parts: list[RenderableType] = []
    for one in found:
        parts += [_table(one), *map(_line, _below(one)), _line("")]
    return [*parts, _line(NOTE)]


def to_json(found: Sequence[Audited]) -> str:
    return json.dumps([one.to_json() for one in found], indent=1, ensure_ascii=False)


def warnings(found: Iterable[Audited]) -> list[str]:
    """One line for each trial in which a client stands out clearly."""
    return [
        f"warning: {one.trial}: {_named(one.clear)} by what was sent "
        f"({one.signs[one.clear[0]][0].text}). Look closer: {one.closer}"
        for one in found
        if one.clear
    ]


def _named(clients: Sequence[str]) -> str:
    word = "client" if len(clients) == 1 else "clients"
    verb = "stands" if len(clients) == 1 else "stand"
    return f"{word} {listed([shown(name) for name in clients])} {verb} out"


def _table(one: Audited) -> RenderableType:
    rows = []
    for name in list(one.signs)[:MOST]:
        signs = one.signs[name]
        kind, text = (signs[0].kind, signs[0].text) if signs else ("–", "–")
        rows.append((shown(name), f"{one.strength(name):.2f}", kind, printable(text)))
    more = len(one.signs) - MOST
    return plain_table(
        ["client", "strength", "evidence", "what stands out most"],
        rows,
        numbers=("strength",),
        title=f"{one.run}, {one.trial}",
        caption=f"and {more} more clients" if more > 0 else "",
    )


def _below(one: Audited) -> list[str]:
    lines = [printable(remark) for remark in one.remarks]
    if one.clear:
        lines.append(f"{_named(one.clear)} clearly.".capitalize())
    else:
        lines.append("No client stands out clearly.")
    if one.command:
        lines.append(f"try: {printable(one.command)}")
    return lines


def _line(text: str) -> Text:
    return Text(text, no_wrap=True, overflow="ignore")
