"""Asks every rule about every run, joins equal findings, and ranks them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from accord.core.errors import AccordError
from accord.core.names import chosen, listed
from accord.diagnosis.finding import Finding
from accord.diagnosis.rule import findings_of, rules
from accord.report.evidence import RunEvidence


def diagnose(runs: Sequence[RunEvidence]) -> list[Finding]:
    """The findings of all runs, the heaviest first."""
    found = [
        replace(finding, run=run.label)
        for run in runs
        for name in rules
        for finding in findings_of(rules.get(name), run)
    ]
    return sorted(_joined(found), key=lambda one: (-one.weight, one.run, one.rule, one.title))


def only_trials(runs: Sequence[RunEvidence], text: str | None) -> list[RunEvidence]:
    """The runs with only the trials that names.chosen chooses by `text`."""
    if text is None:
        return list(runs)
    known = [trial.id for run in runs for trial in run.trials]
    wanted = chosen(known, text)
    if not wanted:
        raise AccordError(
            f"no trial has {text!r} in its name. The trials are: {listed(known) or 'none'}."
        )
    return [replace(run, trials=[one for one in run.trials if one.id in wanted]) for run in runs]


def _joined(findings: Sequence[Finding]) -> list[Finding]:
    """One finding for all trials of a run with the same rule and title: its strongest case."""
    groups: dict[tuple[str, str, str], list[Finding]] = defaultdict(list)
    for one in findings:
        groups[one.run, one.rule, one.title].append(one)
    return [_join(sorted(g, key=lambda one: (-one.weight, -one.strength))) for g in groups.values()]


def _join(cases: list[Finding]) -> Finding:
    worst = cases[0]
    trials = list(dict.fromkeys(trial for case in cases for trial in case.trials))
    override = next((case.override for case in cases if case.override is not None), None)
    return replace(worst, trials=trials, override=worst.override or override)
