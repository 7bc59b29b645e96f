"""The trials that a record was asked for, and how much work each is, without loading images."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from accord.record.record import Record

if TYPE_CHECKING:
    from accord.study.study import Trial


@dataclass(frozen=True)
class Asked:
    """The number of trials (None: only the images tell it), and the work of a recipe's trial.

    Work is measured in passes of all training images through a net.
    """

    count: int | None
    work: dict[str, float]  # recipe → mean work of its trials
    total: float  # the work of all trials


def read_asked(record: Record) -> Asked:
    """What study.yaml asks for. Raises AccordError if it cannot be read.

    `partition.leave_out: each` makes a trial for every client, and who they are is in the images.
    """
    # The checks of a study load torch, which takes seconds.
    from accord.data.schemes import EACH
    from accord.study.study import check_study

    trials = check_study(record.asked(), record.path).trials()
    works: dict[str, list[float]] = {}
    for trial in trials:
        works.setdefault(trial.recipe.name, []).append(_work(trial))
    known = all(trial.setup.partition.leave_out != EACH for trial in trials)
    return Asked(
        len(trials) if known else None,
        {recipe: sum(found) / len(found) for recipe, found in works.items()},
        sum(map(sum, works.values())),
    )


def _work(trial: Trial) -> float:
    return float(trial.setup.budget.epochs * _passes(trial) * trial.recipe.views_per_image)


def _passes(trial: Trial) -> float:
    """How often all clients are asked; with turns, a round asks one of them."""
    method, clients = trial.method, trial.setup.partition.expected_clients
    if method.open_rounds:
        return method.rounds_for(1)
    return (trial.setup.rounds.count or 1) / ((clients or 1) if method.one_by_one else 1)
