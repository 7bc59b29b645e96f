"""How it was run: the command that repeats it, versions, processor, seeds and hashes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from accord.core.names import listed, shown
from accord.core.text import one_line
from accord.core.yamls import to_yaml
from accord.page.parts import Cell, Code, Column, Details, Part, Prose, Table
from accord.page.section import section
from accord.page.subject import Subject
from accord.report.evidence import ODD, RunEvidence

MOST = 10


@section("provenance", "How it was run", 140)
def provenance(subject: Subject) -> list[Part]:
    commands = [
        f"accord run {shlex.quote(str(run.record.path / 'study.yaml'))} --out "
        f"{shlex.quote(f'runs/{run.label}-again')}"
        for run in subject.runs
    ]
    parts: list[Part] = [
        Prose(
            "These commands repeat all trials. On the same kind of processor with the same "
            "versions of packages, the results are the same bit for bit; the hash of a partition "
            "shows whether it is the same one."
        ),
        Code("\n".join(commands)),
    ]
    report = " ".join(["accord report", *(shlex.quote(str(path)) for path in subject.paths)])
    parts.append(Prose(f"This page was made with {report}.", quiet=True))
    for run in subject.runs:
        parts += [_facts(run, subject), *_study(run)]
    return parts


def _facts(run: RunEvidence, subject: Subject) -> Table:
    trials = [trial for trial in subject.trials if trial.run == run.label]
    seeds = sorted({trial.seed for trial in trials if trial.seed is not None})
    versions: dict[str, list[str]] = {}
    for trial in trials:
        found = trial.info.get("versions")
        for name, version in found.items() if isinstance(found, dict) else ():
            versions.setdefault(str(name), []).append(str(version))
    rows = [
        ("folder", str(run.record.path)),
        ("seeds", ", ".join(map(str, seeds[:50])) or "–"),
        ("processor", _different(trial.info.get("processor") for trial in trials)),
        *((f"version of {name}", _different(found)) for name, found in versions.items()),
        ("hash of the images", _different(trial.info.get("images") for trial in trials)),
        ("hashes of partitions", _hashes(trial.info.get("partition_hash") for trial in trials)),
    ]
    cells = [[Cell(one_line(name, 60)), Cell(one_line(value, 400))] for name, value in rows]
    return Table([Column("of the record"), Column("value")], cells, title=shown(run.label))


def _different(values: Iterable[object]) -> str:
    found = list(dict.fromkeys(str(value) for value in values if value))
    return listed(found, MOST) or "–"


def _hashes(values: Iterable[object]) -> str:
    return _different(str(value)[:12] for value in values if value)


def _study(run: RunEvidence) -> list[Part]:
    if not run.asked:
        return []
    try:
        return [Details("The whole study, with all defaults", [Code(to_yaml(run.asked))])]
    except ODD:
        return []
