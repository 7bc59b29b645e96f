"""A rule of the advice, and what it offers to a federation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from accord.advice.choices import Choice
from accord.advice.facts import Facts
from accord.advice.sizes import allowed


@dataclass(frozen=True)
class Evidence:
    """A page of the documentation, a study, and a figure that this page prints."""

    page: str
    study: str
    figure: str
    says: str  # what was measured, with the figure


@dataclass(frozen=True)
class Rule:
    """One line of advice."""

    have: str  # the federation, for people: "you have …"
    use: str  # the recipe and the fusion, for people
    why: str
    evidence: Evidence
    holds: Callable[[Facts], bool]
    make: Callable[[Facts], Choice]
    second: bool = False  # whether it is only a runner-up, never the recommendation

    def offer(self, facts: Facts) -> Choice | None:
        """What the rule advises, if it holds and stays within the limits."""
        if not self.holds(facts):
            return None
        found = self.make(facts)
        reveals = found.features is not None and found.features > facts.smallest
        if (facts.private and reveals) or found.rounds > facts.exchanges:
            return None
        return found if allowed(facts, found.upload) else None


@dataclass(frozen=True)
class Pick:
    """A rule that fits a federation, and what it advises for it."""

    rule: Rule
    choice: Choice
