"""The geometry of prototypes: angles between classes, and between clients."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import Any

from accord.report.evidence import Evidence

TENSOR = "net.head.prototypes"
CLIENTS = 20  # clients whose uploads are read


@dataclass(frozen=True)
class Geometry:
    """Cosines of the prototypes of one trial."""

    classes: int
    within: dict[str, list[float]]  # client → cosines of all pairs of its prototypes
    held: dict[str, list[float]]  # the same, of the classes that the client holds
    between: list[float]  # of a class's prototypes at two clients that both hold the class

    @property
    def target(self) -> float:
        """The cosine of all pairs in a simplex ETF."""
        return -1 / (self.classes - 1)


def geometry_of(trial: Evidence) -> Geometry | None:
    """None if fewer than two classes, or no uploads with prototypes are there.

    Also None if only one of several clients has one: in turns, a round has one net.
    """
    clients = trial.clients[:CLIENTS]
    counts = dict(zip(trial.clients, trial.label_counts, strict=False))
    found = {client: _unit(trial.tensors(client, [TENSOR]).get(TENSOR)) for client in clients}
    rows = {client: matrix for client, matrix in found.items() if matrix is not None}
    sizes = {matrix.shape for matrix in rows.values()}
    if len(sizes) != 1 or next(iter(sizes))[0] < 2 or len(rows) == 1 < len(clients):
        return None
    classes = next(iter(sizes))[0]
    holds = {c: [n for n, k in enumerate(counts.get(c, [])[:classes]) if k] for c in rows}
    return Geometry(
        classes,
        {client: _pairs(matrix) for client, matrix in rows.items()},
        {client: _pairs(matrix[holds[client]]) for client, matrix in rows.items()},
        [
            float(rows[one][label] @ rows[two][label])
            for one, two in combinations(rows, 2)
            for label in sorted({*holds[one]} & {*holds[two]})
        ],
    )


def _unit(matrix: Any) -> Any:
    """The rows with length 1, as numpy; None if this is no matrix of numbers."""
    if matrix is None or matrix.ndim != 2 or not matrix.isfinite().all():
        return None
    values = matrix.double().numpy()
    norms = (values**2).sum(axis=1, keepdims=True) ** 0.5
    return values / norms.clip(min=1e-12)


def _pairs(rows: Any) -> list[float]:
    """The cosines of all pairs of rows."""
    import numpy as np

    cosines = rows @ rows.T
    return [float(value) for value in cosines[np.triu_indices(len(rows), 1)]]
