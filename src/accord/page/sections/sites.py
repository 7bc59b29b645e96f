"""How good each model is for each site, on the site's own held-out images."""

from __future__ import annotations

import statistics
from typing import Any

from accord.core.names import shown
from accord.page.parts import Cell, Column, Details, Part, Prose, Table
from accord.page.section import section
from accord.page.subject import Subject
from accord.report.comparison import percent, spread
from accord.report.evidence import ODD
from accord.report.sites import settings

OPEN, MOST = 2, 12
FIGURES = {
    "accuracy": "accuracy %",
    "local_accuracy": "alone %",
    "central_accuracy": "central %",
    "balanced_accuracy": "balanced %",
    "worst_class": "worst class %",
}


@section("sites", "Sites", 120)
def sites(subject: Subject) -> list[Part]:
    parts: list[Part] = []
    chosen = {(trial.run, trial.id) for trial in subject.trials if trial.rows}
    tables: list[Table] = []
    for run in subject.runs:
        try:
            rows = [row for row in run.record.site_rows() if (run.label, row["trial"]) in chosen]
            tables += [_table(lines) for lines in settings(rows)] if rows else []
        except ODD as error:
            parts.append(Prose(f"The figures of sites cannot be read: {error}", quiet=True))
    for index, table in enumerate(tables[:MOST]):
        parts.append(table if index < OPEN else Details(table.title, [table]))
    if len(tables) > MOST:
        parts.append(Prose(f"Further settings: {len(tables) - MOST}.", quiet=True))
    return parts


def _table(lines: list[dict[str, Any]]) -> Table:
    there = {key: head for key, head in FIGURES.items() if any(line.get(key) for line in lines)}
    columns = [Column("recipe (fusion)"), Column("site"), Column("images", number=True)]
    columns += [Column(head, number=True) for head in there.values()]
    rows = [
        [
            Cell(shown(f"{line['recipe']} ({line['fusion']})")),
            Cell(shown(line["site"]) + ("" if line["took_part"] else " (took no part)")),
            Cell("–".join(dict.fromkeys(map(str, (line["images"][0], line["images"][-1])))),
                 line["images"][-1]),
            *(Cell(percent(line[key]), statistics.fmean(line[key]) if line[key] else None)
              for key in there),
        ]
        for line in lines
    ]  # fmt: skip
    first = lines[0]
    alpha = f", α {first['alpha']:g}" if isinstance(first["alpha"], float) else ""
    title = f"{first['dataset']}, {first['partition']}{alpha}, {first['clients']} clients"
    counts = {len(line["seeds"]) for line in lines}
    notes = [
        f"Accuracy on the held-out images of each site, {spread(counts)}. "
        "Alone: the site's own net; central: the net of all images."
    ]
    return Table(columns, rows, title=shown(title), notes=notes)
