"""A finding: what is wrong, its evidence, what it means, and what to try."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

# The words for weights, from the highest on. A finding below the last bound is a remark.
LEVELS = ((70, "serious"), (40, "important"), (0, "remark"))


@dataclass(frozen=True)
class Finding:
    """One finding. The same finding in several trials is one, with its strongest case as evidence.

    Findings of one rule with the same title are joined. A title therefore holds neither figures
    nor names of clients; these are in the evidence.
    """

    rule: str  # name of the rule in the registry
    weight: int  # from 0 to 100: how much it should worry a reader
    title: str
    trials: list[str]  # names of the trials, the strongest case first; empty: the whole run
    evidence: list[str]  # sentences with figures, clients and epochs
    meaning: str  # one or two sentences
    remedy: str | None = None  # a sentence
    override: str | None = None  # a command to paste
    run: str = ""  # label of the run
    strength: float = field(default=0.0, repr=False)  # of several cases, the largest is shown

    @property
    def level(self) -> str:
        return next(word for bound, word in LEVELS if self.weight >= bound)

    def to_json(self) -> dict[str, Any]:
        keys = ("run", "rule", "weight", "level", "title", "trials", "evidence", "meaning")
        return {key: getattr(self, key) for key in (*keys, "remedy", "override")}
