"""`python -m benchmarks.attacks RUN`: the tables of docs/attacks.md, from a run of a study.

The first table shows the accuracy of every rule under every attack, and the second what
`accord audit` found: how many hostile clients were named, and how many honest ones.
"""

from __future__ import annotations

import argparse
import statistics
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from accord.attacks.settings import AttackConfig
from accord.auditing.audit import Audited, audit_runs
from accord.data.hostile import hostile_clients
from accord.report.evidence import Evidence, read_evidence
from accord.report.results import load

Cell = tuple[str, int]  # attack, number of hostile clients


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.attacks", description=__doc__)
    parser.add_argument("run", type=Path, help="a run directory")
    parser.add_argument("--no-audit", action="store_true", help="show the accuracies only")
    asked = parser.parse_args()
    print("\n".join(accuracies(asked.run)))
    if not asked.no_audit:
        print()
        print("\n".join(audits(asked.run)))


def accuracies(run: Path) -> list[str]:
    """Recipe and fusion (rows) × attack and number of hostile clients (columns), in percent."""
    found: dict[tuple[str, ...], dict[Cell, list[float]]] = defaultdict(lambda: defaultdict(list))
    rows = load(run).rows
    last = {
        row["trial"]: max(r["epoch"] for r in rows if r["trial"] == row["trial"]) for row in rows
    }
    for row in rows:
        if row["epoch"] == last[row["trial"]]:
            line = (str(row["alpha"]), row["recipe"], row["fusion"])
            found[line][_cell(row)].append(100 * row["accuracy"])
    cells = list(dict.fromkeys(cell for line in found.values() for cell in line))
    lines = [
        _row("α", "recipe", "fusion", *map(_heading, cells)),
        _row(*["---"] * (3 + len(cells))),
    ]
    for names, values in found.items():
        lines.append(_row(*names, *(_spread(values.get(cell, [])) for cell in cells)))
    return lines


def audits(run: Path) -> list[str]:
    """Recipe (rows) × attack: hostile clients that stand out clearly, and honest ones, of all."""
    found: dict[tuple[str, str], dict[Cell, list[int]]] = defaultdict(dict)
    for trial, one in _audited(run):
        attack = trial.config["attack"]
        sources = hostile_clients(AttackConfig(**attack), trial.seed or 0, trial.clients)
        hostile = {*sources}
        # Of two uploads that are alike nobody can say which one is the copy.
        involved = hostile | {*sources.values()}
        cell = (attack["name"], attack["clients"])
        counts = found[str(trial.alpha), trial.recipe].setdefault(cell, [0, 0, 0, 0])
        named = {*one.clear}
        told = (named & hostile, hostile, named - involved, {*one.signs} - involved)
        for place, clients in enumerate(told):
            counts[place] += len(clients)
    cells = list(dict.fromkeys(cell for line in found.values() for cell in line))
    lines = [_row("α", "recipe", *map(_heading, cells)), _row(*["---"] * (2 + len(cells)))]
    for names, line in found.items():
        lines.append(_row(*names, *(_named(line.get(cell)) for cell in cells)))
    return lines


def _named(counts: list[int] | None) -> str:
    """Hostile clients that were named, and honest ones."""
    if counts is None:
        return "–"
    right, hostile, wrong, honest = counts
    return f"{right}/{hostile}, {wrong}/{honest}" if hostile else f"{wrong}/{honest}"


def _audited(run: Path) -> Iterator[tuple[Evidence, Audited]]:
    for one in read_evidence([run]):
        for trial in one.trials:
            for found in audit_runs([replace(one, trials=[trial])]):
                yield trial, found


def _cell(row: dict[str, Any]) -> Cell:
    return str(row.get("attack.name", "none")), int(row.get("attack.clients", 0))


def _heading(cell: Cell) -> str:
    name, clients = cell
    return f"{name}, {clients}" if clients else name


def _spread(values: list[float]) -> str:
    if len(values) < 2:
        return f"{values[0]:.1f}" if values else "–"
    return f"{statistics.mean(values):.1f} ± {statistics.stdev(values):.1f}"


def _row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
