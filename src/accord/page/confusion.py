"""Confusion matrices: rows are the true classes, columns are what the model says."""

from __future__ import annotations

from collections.abc import Sequence

from accord.page.parts import Part
from accord.page.tables.heat import heat_map
from accord.report.evidence import Evidence

Matrix = list[list[float]]


def confusion_of(trial: Evidence, fusion: str) -> Matrix:
    """The matrix of a fusion at the last checkpoint; empty if it is not there or not square."""
    measured = (trial.final or {}).get("fusions", {}).get(fusion)
    found = measured.get("confusion") if isinstance(measured, dict) else None
    if not isinstance(found, list) or len(found) != len(trial.classes):
        return []
    square = all(isinstance(row, list) and len(row) == len(found) for row in found)
    numbers = square and all(isinstance(n, int | float) for row in found for n in row)
    return found if numbers else []


def recalls(matrix: Matrix) -> list[float | None]:
    """The accuracy of each class; None for a class without test images."""
    return [row[index] / sum(row) if sum(row) else None for index, row in enumerate(matrix)]


def confusion_map(matrix: Matrix, names: Sequence[str], title: str) -> Part:
    """Shares of each true class in percent."""
    shares = [[value / sum(row) if sum(row) else 0.0 for value in row] for row in matrix]
    texts = [[f"{100 * share:.0f}" if share >= 0.005 else "" for share in row] for row in shares]
    wrong = [
        (share, names[row], names[column])
        for row, found in enumerate(shares)
        for column, share in enumerate(found)
        if row != column
    ]
    share, true, said = max(wrong, default=(0.0, "", ""))
    words = f"Most frequent mistake: {true} is taken for {said}, {100 * share:.0f} %."
    return heat_map(
        shares, names, names, title=title, down="class", across="the model says, in % of the class",
        texts=texts, highest=1.0, words=words,
    )  # fmt: skip
