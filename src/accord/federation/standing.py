"""Trials that begin with the result of another trial: what they wait for, and what they need."""

from __future__ import annotations

from typing import TYPE_CHECKING

from accord.federation.rounds import Round
from accord.federation.tasks.outcome import Outcome
from accord.federation.work import Run

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun


def outcome_of(run: TrialRun) -> Outcome:
    """What is needed to make the net of a finished trial."""
    last = run.rounds[-1]
    return Outcome(
        place=run.place,
        round=last.number,
        epoch=last.last_epoch,
        clients=last.answered,
        fusion=run.trial.fusions[0].spec,
    )


def rounds_before(run: TrialRun) -> tuple[Round, ...]:
    """The rounds of all trials that the trial stands on, in order."""
    if run.before is None:
        return ()
    return (*rounds_before(run.before), *run.before.rounds)


def reasons_of(*helpers: Run | None) -> list[str]:
    """The reasons of those runs that have failed."""
    failed = [one for one in helpers if one is not None and one.status == "failed"]
    return [reason for one in failed for reason in one.failures]


def all_over(*helpers: Run | None) -> bool:
    """Whether none of these runs has anything left to do."""
    return all(one is None or one.over for one in helpers)
