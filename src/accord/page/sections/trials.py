"""Every trial in detail, opened on request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from accord.core.names import shown
from accord.core.text import one_line
from accord.core.yamls import to_yaml
from accord.page.confusion import confusion_map, confusion_of
from accord.page.entropy import label_entropy
from accord.page.parts import Box, Cell, Code, Column, Details, Part, Prose, Table
from accord.page.section import section
from accord.page.subject import Subject
from accord.report.comparison import short
from accord.report.evidence import ODD, Evidence

CONFUSION = 10  # classes of a confusion matrix in the details
CELLS = 40_000  # cells of all confusion matrices in the details
CLIENTS = 100  # lines of a table of clients
MOST = 400  # trials
LOG = 40  # last lines of the log of a failed trial


@section("trials", "Trials", 130)
def trials(subject: Subject) -> list[Part]:
    several = len(subject.runs) > 1
    cells = sum(len(t.classes) ** 2 for t in subject.trials if len(t.classes) <= CONFUSION)
    parts: list[Part] = [
        _details(trial, several, confusion=cells <= CELLS) for trial in subject.trials[:MOST]
    ]
    if len(subject.trials) > MOST:
        parts.append(Prose(f"Further trials: {len(subject.trials) - MOST}.", quiet=True))
    return parts


def _details(trial: Evidence, several: bool, confusion: bool) -> Details:
    parts: list[Part] = []
    for make in (_failures, _costs, _results, _clients):
        parts += _tried(make, trial)
    if confusion and len(trial.classes) <= CONFUSION:
        parts += _tried(_confusion, trial)
    parts += _tried(_config, trial)
    run = f"{shown(trial.run)}: " if several else ""
    return Details(f"{run}{shown(trial.id)}", parts, _remark(trial))


def _tried(make: Any, trial: Evidence) -> list[Part]:
    """The parts, or a sentence if the files of the trial hold something unexpected."""
    try:
        return list(make(trial))
    except (*ODD, ArithmeticError) as error:
        return [Prose(f"Damaged content: {one_line(repr(error), 200)}", quiet=True)]


def _remark(trial: Evidence) -> str:
    """The status or the best accuracy, beside the name."""
    if trial.status != "finished":
        return one_line(trial.status, 20)
    fusions = (trial.final or {}).get("fusions") or {}
    told = [f"{shown(name)} {100 * one['accuracy']:.1f} %" for name, one in fusions.items()]
    return ", ".join(told[:3])


def _failures(trial: Evidence) -> list[Part]:
    failures = [one_line(str(reason), 500) for reason in trial.info.get("failures") or ()]
    if not failures:
        return []
    parts: list[Part] = [Box("Failures", failures)]
    log = trial.folder.path / "logs" / "server.log"
    if log.is_file():
        lines = log.read_text("utf-8", errors="replace").splitlines()
        parts.append(Code("\n".join(lines[-LOG:])))
    return parts


def _costs(trial: Evidence) -> list[Part]:
    info = trial.info
    figures = (
        ("status", one_line(trial.status, 40)),
        ("seed", short(trial.seed)),
        ("MB up", _scaled(info.get("upload_bytes"), 1e6)),
        ("MB down", _scaled(info.get("download_bytes"), 1e6)),
        ("core seconds", _scaled(info.get("core_seconds"), 1)),
        ("of training", _scaled(info.get("seconds"), 1)),
        ("peak memory MB", _scaled(info.get("peak_memory_bytes"), 1e6)),
        ("partition hash", one_line(str(info.get("partition_hash") or "–"), 12)),
    )
    row = [Cell(text) for _, text in figures]
    return [Table([Column(name) for name, _ in figures], [row], title="Costs")]


def _scaled(value: Any, unit: float) -> str:
    return f"{value / unit:,.1f}" if isinstance(value, int | float) else "–"


def _results(trial: Evidence) -> list[Part]:
    """Every fusion at every checkpoint."""
    keys = {
        "accuracy": "accuracy %", "balanced_accuracy": "balanced %", "worst_class": "worst %",
        "validation_accuracy": "validation %", "ece": "ECE %",
    }  # fmt: skip
    there = [key for key in keys if any(row.get(key) is not None for row in trial.rows)]
    if not there:
        return []
    columns = [Column("fusion"), Column("round", number=True), Column("epoch", number=True)]
    columns += [Column(keys[key], number=True) for key in there]
    rows = [
        [
            Cell(shown(row["fusion"])),
            Cell(f"{row['round']}", row["round"]),
            Cell(f"{row['epoch']}", row["epoch"]),
            *(_percent(row.get(key)) for key in there),
        ]
        for row in trial.rows[-60:]
    ]
    return [Table(columns, rows, title="Results")]


def _percent(value: Any) -> Cell:
    return Cell(f"{100 * value:.1f}", value) if isinstance(value, int | float) else Cell("–")


def _clients(trial: Evidence) -> list[Part]:
    measured = {str(one["client"]): one for one in (trial.final or {}).get("clients") or ()}
    counts = dict(zip(trial.clients, trial.label_counts, strict=False))
    names = list(dict.fromkeys([*trial.clients, *measured]))
    if not names:
        return []
    keys = {
        "train_accuracy": "own images %", "test_accuracy": "test images %",
        "neighbours": "neighbours %",
    }  # fmt: skip
    there = [key for key in keys if any(one.get(key) is not None for one in measured.values())]
    columns = [Column("client"), Column("images", number=True), Column("classes", number=True)]
    columns += [Column("entropy in bits", number=True)]
    columns += [Column(keys[key], number=True) for key in there]
    rows = []
    for name in names[:CLIENTS]:
        held: Sequence[int] = counts.get(name, [])
        entropy = label_entropy(held)
        rows.append(
            [
                Cell(shown(name)),
                Cell(f"{sum(held):,}", sum(held)),
                Cell(f"{sum(1 for n in held if n)}", sum(1 for n in held if n)),
                Cell(f"{entropy:.2f}", entropy),
                *(_percent(measured.get(name, {}).get(key)) for key in there),
            ]
        )
    more = [f"Further clients: {len(names) - CLIENTS}."] if len(names) > CLIENTS else []
    return [Table(columns, rows, title="Clients: accuracy of each one's own net", notes=more)]


def _confusion(trial: Evidence) -> list[Part]:
    """The matrix of the most accurate fusion."""
    fusions = (trial.final or {}).get("fusions") or {}
    if not fusions:
        return []
    best = max(fusions, key=lambda name: float(fusions[name]["accuracy"]))
    matrix = confusion_of(trial, best)
    return [confusion_map(matrix, trial.classes, f"Confusion of {shown(best)}")] if matrix else []


def _config(trial: Evidence) -> list[Part]:
    config = {key: value for key, value in trial.config.items() if key != "options"}
    return [Details("Configuration", [Code(to_yaml(config))])] if config else []
