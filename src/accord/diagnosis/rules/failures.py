"""Trials and clients that failed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from accord.core.names import listed, shown
from accord.core.text import one_line
from accord.diagnosis.finding import Finding
from accord.diagnosis.remedies import run_with
from accord.diagnosis.rule import on_trials
from accord.report.evidence import Evidence, RunEvidence

LONGEST = 250  # characters of a reason
DIVERGED = ("nan", "inf")  # words in the reason of a training that diverged


@on_trials("failed-trial")
def failed_trial(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:
    """A trial has failed."""
    reasons = trial.info.get("failures") or []
    if trial.status != "failed":
        return
    told = [one_line(str(reason), LONGEST) for reason in reasons]
    words = " ".join(told).lower().replace("=", " ").replace(",", " ").split()
    diverged = any(word in words for word in DIVERGED)
    lr = trial.config.get("budget", {}).get("lr")
    yield Finding(
        rule="failed-trial",
        weight=90,
        title=f"a trial has failed ({trial.recipe})",
        trials=[trial.id],
        evidence=told[:3] or ["The record gives no reason; see the trial's logs/."],
        meaning=(
            "The training diverged: its losses or weights are not finite."
            if diverged
            else "The trial has no result, so that means over seeds lack it."
        ),
        remedy=(
            "Lower the learning rate, or bound λ."
            if diverged
            else "Remove the cause, and run the same study again; finished trials are kept."
        ),
        override=run_with(run, budget__lr=lr / 10) if diverged and lr else None,
        strength=len(told),
    )


@on_trials("failed-clients")
def failed_clients(run: RunEvidence, trial: Evidence) -> Iterator[Finding]:  # noqa: ARG001
    """Clients did not answer in some rounds."""
    missed: dict[str, list[int]] = {}
    reasons: dict[str, str] = {}
    rounds = trial.info.get("rounds") or []
    for one in rounds:
        failed = one.get("failed")
        for name, reason in failed.items() if isinstance(failed, Mapping) else ():
            missed.setdefault(str(name), []).append(int(one["round"]))
            reasons.setdefault(str(name), one_line(str(reason), LONGEST))
    if not missed:
        return
    worst = max(missed, key=lambda name: len(missed[name]))
    yield Finding(
        rule="failed-clients",
        weight=55,
        title=f"clients did not answer ({trial.recipe})",
        trials=[trial.id],
        evidence=[
            f"{len(missed)} clients missed rounds: {listed(list(missed), 5)}.",
            f"Client {shown(worst)} missed {len(missed[worst])} of {len(rounds)} rounds, first "
            f"round {missed[worst][0]}: {reasons[worst]}",
        ],
        meaning="The model was made without their images in these rounds.",
        remedy="See the reason, and whether the accuracy differs in these rounds (accord results).",
        strength=sum(map(len, missed.values())),
    )
