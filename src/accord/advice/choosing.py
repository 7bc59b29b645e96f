"""The choice between the rules: the first that fits, and the next one as the runner-up."""

from __future__ import annotations

from accord.advice.facts import Facts
from accord.advice.rule import Pick
from accord.advice.rules import RULES
from accord.core.errors import AccordError


def choose(facts: Facts) -> tuple[Pick, Pick]:
    """The recommendation and the runner-up. Limits that no recipe meets raise AccordError."""
    offers = [(rule, rule.offer(facts)) for rule in RULES]
    picks = [Pick(rule, choice) for rule, choice in offers if choice is not None]
    for first in picks:
        others = [pick for pick in picks if pick.choice.label != first.choice.label]
        if not first.rule.second and others:
            return first, others[0]
    raise AccordError(
        f"no recipe stays within all of these limits: {_limits(facts)}. Allow more megabytes, or "
        "leave out one of the limits."
    )


def _limits(facts: Facts) -> str:
    limits = [
        f"--megabytes {facts.megabytes:g}" if facts.megabytes is not None else "",
        f"--private with a client of {facts.smallest:,} images" if facts.private else "",
        "--one-net" if facts.one_net else "",
    ]
    return ", ".join(filter(None, limits))
