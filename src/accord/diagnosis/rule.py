"""The registry of rules. A rule is a function that reads a trial or a run and yields findings.

A record may be damaged or of an older format. A rule that cannot judge says nothing: it may let any
of the errors in `CANNOT_JUDGE` pass, and the others are still asked.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from accord.core.registry import Registry
from accord.diagnosis.finding import Finding
from accord.report.evidence import ODD, Evidence, RunEvidence

Rule = Callable[[RunEvidence], Iterable[Finding]]
rules: Registry[Rule] = Registry("rule", "accord.diagnosis.rules")

# Reading figures that are absent, of another type, of another shape or out of range.
CANNOT_JUDGE = (*ODD, LookupError, ArithmeticError, RuntimeError, AssertionError)


def findings_of(rule: Callable[..., Iterable[Finding]], *about: Any) -> list[Finding]:
    """What a rule finds; nothing if it cannot judge."""
    try:
        return list(rule(*about))
    except CANNOT_JUDGE:
        return []


def on_trials(name: str) -> Callable[[Callable[..., Iterable[Finding]]], Rule]:
    """Registers a rule that reads one trial of a run: `look(run, trial)`."""

    def add(look: Callable[[RunEvidence, Evidence], Iterable[Finding]]) -> Rule:
        @functools.wraps(look)
        def rule(run: RunEvidence) -> Iterator[Finding]:
            for trial in run.trials:
                yield from findings_of(look, run, trial)

        return rules.register(name)(rule)

    return add
