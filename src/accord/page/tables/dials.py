"""Tables of λ, in the shapes of the research notes 001 and 003."""

from __future__ import annotations

import math

from accord.core.names import shown
from accord.page.entropy import label_entropy
from accord.page.parts import Cell, Column, Table
from accord.page.telemetry import epochs_of, number, some
from accord.report.evidence import Evidence

CLIENTS = 12  # columns of the table of all clients


def client_table(trial: Evidence, dial: str) -> Table:
    """λ of each client, which does not change, beside the label entropy that may decide it."""
    heads = ("client", "images", "label entropy in bits", "of the highest possible", "λ")
    highest = math.log2(max(2, len(trial.classes)))
    counts = dict(zip(trial.clients, trial.label_counts, strict=False))
    rows = []
    for client, values in trial.series(dial).items():
        held = counts.get(client, [])
        entropy = label_entropy(held)
        last = values[max(values)]
        rows.append(
            [
                Cell(shown(client)),
                Cell(f"{sum(held):,}", sum(held)),
                Cell(f"{entropy:.3f}", entropy),
                Cell(f"{entropy / highest:.3f}", entropy / highest),
                Cell(number(last), last),
            ]
        )
    return Table(
        [Column(h, number=i > 0) for i, h in enumerate(heads)],
        rows,
        title=f"{_name(dial)} of each client, the same in all epochs",
    )


def course_table(trial: Evidence, dial: str) -> Table:
    """Epoch × client; with many clients, the lowest, the middle and the highest λ."""
    series = trial.series(dial)
    epochs = some(epochs_of(series), trial_checkpoints(trial), 24)
    names = list(series)[:CLIENTS]
    columns = [Column("epoch", number=True), *(Column(shown(n), number=True) for n in names)]
    rows = [
        [
            Cell(f"{epoch}", epoch),
            *(Cell(number(series[n].get(epoch)), series[n].get(epoch)) for n in names),
        ]
        for epoch in epochs
    ]
    more = len(series) - len(names)
    notes = [f"Further clients: {more}; accord dials shows them."] if more else []
    return Table(columns, rows, title=f"{_name(dial)} per epoch and client", notes=notes)


def explosion_table(trial: Evidence, dial: str) -> Table:
    """Raw λ, s and effective λ of the client with the highest λ, beside the accuracy."""
    raw = dial.replace("lambda_effective", "lambda_raw")
    known = {
        name: trial.series(dial.replace("lambda_effective", name).replace("lambda_raw", name))
        for name in ("lambda_raw", "attenuation", "lambda_effective", "lambda_star")
    }
    series = trial.series(raw) or trial.series(dial)
    worst = max(series, key=lambda client: max(series[client].values()))
    fusion = next(iter((trial.final or {}).get("fusions") or {}), None)
    accuracy = trial.accuracies(fusion) if fusion else {}
    heads = ("epoch", "raw λ", "s", "effective λ", "predicted λ*", "accuracy %")
    rows = []
    for epoch in some(epochs_of(series), accuracy):
        values = [known[name].get(worst, {}).get(epoch) for name in known]
        reached = accuracy.get(epoch)
        cells = [Cell(number(value), value) for value in values]
        told = Cell(f"{100 * reached:.1f}", reached) if reached is not None else Cell("–")
        rows.append([Cell(f"{epoch}", epoch), *cells, told])
    notes = [
        f"Client {shown(worst)}, which has the highest λ. s: attenuation. λ*: the value to which λ "
        "would converge if the losses of the epoch did not change. Accuracy: of the fused model, "
        "where it was measured."
    ]
    return Table(
        [Column(head, number=True) for head in heads], rows, title="λ and accuracy", notes=notes
    )


def trial_checkpoints(trial: Evidence) -> list[int]:
    return [int(one["epoch"]) for one in trial.checkpoints]


def _name(dial: str) -> str:
    """What a dial is called: `anchors_lambda_raw` is λ of the term anchors."""
    term = dial.replace("_lambda_effective", "").replace("_lambda_raw", "")
    return "λ" if term == dial else f"λ of {shown(term)}"
