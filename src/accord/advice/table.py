"""The advice as a table for the documentation, made from the rules."""

from __future__ import annotations

from accord.advice.rules import RULES, Rule

BEGIN, END = "<!-- advice -->", "<!-- /advice -->"


def markdown() -> str:
    """One row per rule, in the order in which they are tried, between two marks."""
    rows = [
        "| you have | use | evidence |",
        "|---|---|---|",
        *[f"| {_have(rule)} | {rule.use} | {_evidence(rule)} |" for rule in RULES],
    ]
    return "\n".join([BEGIN, *rows, END])


def _have(rule: Rule) -> str:
    return f"{rule.have} (runner-up only)" if rule.second else rule.have


def _evidence(rule: Rule) -> str:
    found = rule.evidence
    return f"{found.says} ([{found.page.removeprefix('docs/')}]({found.page}))"
