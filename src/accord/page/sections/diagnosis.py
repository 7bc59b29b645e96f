"""The findings of `accord diagnose`: what went wrong, why, and what to try."""

from __future__ import annotations

from dataclasses import replace

from accord.core.names import listed
from accord.core.text import printable
from accord.diagnosis.diagnose import diagnose
from accord.diagnosis.finding import Finding
from accord.page.parts import Item, Items, Part, Prose
from accord.page.section import section
from accord.page.subject import Subject

MOST = 30
TRIALS = 3


@section("diagnosis", "Diagnosis", 30)
def diagnosis(subject: Subject) -> list[Part]:
    chosen = {(trial.run, trial.id) for trial in subject.trials}
    runs = [
        replace(run, trials=[one for one in run.trials if (one.run, one.id) in chosen])
        for run in subject.runs
    ]
    findings = diagnose(runs)
    if not findings:
        return [Prose("No rule of the diagnosis found a problem in these trials.")]
    parts: list[Part] = [Items([_item(one) for one in findings[:MOST]])]
    if len(findings) > MOST:
        more = len(findings) - MOST
        parts.append(Prose(f"Lighter findings: {more}; accord diagnose shows them.", quiet=True))
    return parts


def _item(finding: Finding) -> Item:
    lines = [*finding.evidence, finding.meaning]
    if finding.remedy:
        lines.append(f"To try: {finding.remedy}")
    if finding.trials:
        lines.append(f"Seen in: {listed(finding.trials, TRIALS)}.")
    return Item(printable(finding.title), lines, finding.override or "", finding.level)
