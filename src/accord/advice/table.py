"""The advice as a table for the documentation, made from the rules."""

from __future__ import annotations

from accord.advice.rule import Rule
from accord.advice.rules import RULES

BEGIN, END = "<!-- advice -->", "<!-- /advice -->"


def markdown(folder: str = "docs/") -> str:
    """One row per rule, in the order in which they are tried, between two marks.

    `folder` is the path from the page with the table to the pages of the documentation.
    """
    rows = [
        "| you have | use | evidence |",
        "|---|---|---|",
        *[f"| {_have(rule)} | {rule.use} | {_evidence(rule, folder)} |" for rule in RULES],
    ]
    return "\n".join([BEGIN, *rows, END])


def short_markdown() -> str:
    """The table of the README: the rules that recommend a recipe, without the evidence."""
    chosen = [rule for rule in RULES if not rule.second and not rule.have.startswith("the same")]
    rows = [f"| {rule.have} | {rule.use} |" for rule in chosen]
    return "\n".join([BEGIN, "| you have | use |", "|---|---|", *rows, END])


def _have(rule: Rule) -> str:
    return f"{rule.have} (runner-up only)" if rule.second else rule.have


def _evidence(rule: Rule, folder: str) -> str:
    page = rule.evidence.page.removeprefix("docs/")
    return f"{rule.evidence.says} ([{page}]({folder}{page}))"
