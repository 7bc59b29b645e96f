"""The dials of a run: λ, σ, losses and gradients of every client in every epoch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.table import Table

from accord.core.errors import AccordError, nearest
from accord.core.names import chosen, shown
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.tables import plain_table

Event = dict[str, Any]
DEFAULT = ("lambda_raw", "lambda_effective", "loss_local", "loss_align")
ACCURACIES = ("train_accuracy", "test_accuracy")
LABELS, CELL = 36, 10  # width of the labels and of one value, in characters


def show_dials(
    record: Record, keys: Sequence[str], only: str | None, width: int = 200
) -> list[Table]:
    """One table per trial with telemetry; `only` chooses trials as names.chosen does.

    If not all epochs fit into `width`, only some are shown, including the first and the last.
    """
    every = record.trials()
    wanted = chosen((trial.id for trial in every), only)
    trials = [trial for trial in every if trial.id in wanted]
    found = {trial.id: events_of(trial) for trial in trials}
    found = {name: events for name, events in found.items() if events}
    if not found:
        known = ", ".join(trial.id for trial in every) or "none"
        raise AccordError(f"no telemetry of such a trial in {record.path}; trials: {known}.")
    _refuse_unknown(keys, sorted({k for events in found.values() for e in events for k in e}))
    count = max(2, (width - LABELS) // CELL)
    clients = {
        trial.id: clients_of(trial, found[trial.id]) for trial in trials if trial.id in found
    }
    tables = [
        _table(name, events, clients[name], keys or DEFAULT, count)
        for name, events in found.items()
    ]
    tables = [table for table in tables if table.row_count]
    if not tables:
        raise AccordError(
            f"{', '.join(keys or DEFAULT)}: no recipe of these trials has these dials."
        )
    return tables


def events_of(trial: TrialFolder) -> list[Event]:
    """The telemetry of a trial, one event per client and epoch, also while the trial runs.

    Events at a checkpoint also contain the accuracies of the client's own net.
    """
    measured = {
        (client["client"], checkpoint["epoch"]): {key: client[key] for key in ACCURACIES}
        for checkpoint in trial.measures()["checkpoints"]
        for client in checkpoint.get("clients", ())
    }
    # If an epoch was done twice, its last event is used.
    events = {(event["client"], event["epoch"]): event for event in trial.read_events()}
    unknown = dict.fromkeys(ACCURACIES)
    return [{**event, **measured.get(at, unknown)} for at, event in events.items()]


def clients_of(trial: TrialFolder, events: list[Event]) -> list[str]:
    """The clients in the events of a trial, in the order of its partition."""
    there = dict.fromkeys(event["client"] for event in events)
    known = [name for name in trial.info().get("client_files", ()) if name in there]
    return list(dict.fromkeys([*known, *there]))


def _refuse_unknown(keys: Sequence[str], known: list[str]) -> None:
    for key in keys:
        if not any(_is(key, name) for name in known):
            hint = nearest(key, known) or "."
            raise AccordError(f"unknown dial {key!r}{hint} Known: {', '.join(known)}.")


def _is(key: str, known: str) -> bool:
    """Whether `key` names a dial; `lambda_raw` also names `anchors_lambda_raw`."""
    return known == key or known.endswith(f"_{key}")


def _table(
    title: str, events: list[Event], clients: list[str], keys: Sequence[str], count: int
) -> Table:
    at = {(event["client"], event["epoch"]): event for event in events}
    present = dict.fromkeys(key for event in events for key in event)
    chosen = dict.fromkeys(known for key in keys for known in present if _is(key, known))
    epochs = _fitting(events, list(chosen), count)
    rows = []
    for key in chosen:
        for client in clients:
            values = [at.get((client, epoch), {}).get(key) for epoch in epochs]
            if any(value is not None for value in values):
                rows.append((key, shown(client), *map(_shown, values)))
    columns = [str(epoch) for epoch in epochs]
    return plain_table(("dial", "client", *columns), rows, numbers=columns, title=title)


def _fitting(events: list[Event], keys: list[str], count: int) -> list[int]:
    """At most `count` epochs; epochs with values for all keys (checkpoints) are preferred."""
    epochs = sorted({event["epoch"] for event in events})
    seen = {(e["epoch"], key) for e in events for key in keys if e.get(key) is not None}
    full = [epoch for epoch in epochs if all((epoch, key) in seen for key in keys)]
    kept = _spread(full, count) if len(epochs) > count else epochs
    rest = [epoch for epoch in epochs if epoch not in kept]
    return sorted([*kept, *_spread(rest, count - len(kept))])


def _spread(epochs: list[int], count: int) -> list[int]:
    """At most `count` epochs at even distances, including the first and the last."""
    if len(epochs) <= count:
        return epochs
    if count < 2:
        return epochs[-count:] if count else []
    last = len(epochs) - 1
    return [epochs[round(index * last / (count - 1))] for index in range(count)]


def _shown(value: float | None) -> str:
    if value is None:
        return "–"
    if 1000 <= abs(value) < 1_000_000:
        return f"{value:,.0f}"
    return f"{value:.3g}"
