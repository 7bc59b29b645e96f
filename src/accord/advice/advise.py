"""Advice for a federation: facts, a recommendation and a runner-up, and a study to test both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import RenderableType

from accord.advice.choosing import choose
from accord.advice.expected import Expected, expect
from accord.advice.facts import Facts, Limits
from accord.advice.gather import Gathered, Source, Tell, gather
from accord.advice.layouts import ENLARGED, LARGEST, SMALLEST
from accord.advice.remarks import warnings as warnings_about
from accord.advice.rule import Pick
from accord.advice.written import evidence_of, study_of, text_of, write
from accord.core.text import json_text, printable
from accord.report.tables import plain_table

Spec = dict[str, Any]
HELD_OUT = 0.1  # fraction of validation images, and of the images that each site holds out
ENOUGH = 20  # images of the smallest client and of the rarest class, to hold some out
NAMED = 5  # clients whose names are shown


@dataclass(frozen=True)
class Advice:
    """What `accord advise` says. `study` is the study that tests it, as a mapping."""

    facts: Facts
    picks: tuple[Pick, Pick]
    warnings: list[str]
    study: Spec
    costs: tuple[Expected, ...] = ()  # of both recipes, if they were estimated

    @property
    def recipe(self) -> str:
        """The recommended recipe."""
        return self.picks[0].choice.recipe

    @property
    def runner_up(self) -> str:
        return self.picks[1].choice.recipe

    def write(self, path: Path | str) -> None:
        """Writes the study. A file of somebody else is never replaced."""
        write(Path(path), text_of(self.study, self.picks, self.warnings))

    def lines(self) -> list[RenderableType]:
        """Everything for people, except where the study was written."""
        rows = list(described(self.facts).items())
        return [
            plain_table(("fact", "found"), rows, title="the federation"),
            *self._about("recommendation", 0),
            *self._about("runner-up", 1),
            "",
            *[f"warning: {warning}" for warning in self.warnings],
        ]

    def _about(self, title: str, index: int) -> list[str]:
        pick = self.picks[index]
        choice, rule = pick.choice, pick.rule
        return [
            "",
            f"{title}: {choice.label}, fusion {choice.fusion}, {_budget(pick)}",
            f"  why: {rule.why}",
            f"  evidence: {evidence_of(pick)}",
            *([f"  expected cost: {self.costs[index].line()}"] if self.costs else []),
        ]

    def to_json(self) -> str:
        entries = [
            {
                "recipe": pick.choice.recipe,
                "as": pick.choice.label,
                "fusion": pick.choice.fusion,
                "rounds": pick.choice.rounds,
                "epochs": pick.choice.epochs,
                "features": pick.choice.features,
                "why": pick.rule.why,
                "evidence": vars(pick.rule.evidence),
                "cost": self.costs[index].to_json() if self.costs else None,
            }
            for index, pick in enumerate(self.picks)
        ]
        content = {
            "facts": self.facts.to_json(),
            "counts": {
                name: dict(zip(self.facts.classes, row, strict=True))
                for name, row in zip(self.facts.clients, self.facts.counts.tolist(), strict=True)
            },
            "recommendation": entries[0],
            "runner_up": entries[1],
            "warnings": self.warnings,
            "study": self.study,
        }
        return json_text(content)


def advise_on(source: Source, limits: Limits, data_root: Path | None, tell: Tell) -> Advice:
    """The advice, without the expected cost."""
    found = gather(source, limits, data_root, tell)
    settled = _settled(found)
    if settled is not source:
        found = gather(settled, limits, data_root, lambda _: None)
    picks = choose(found.facts)
    said = [*source.remarks, *_about_images(found), *warnings_about(found.facts, picks[0])]
    return Advice(found.facts, picks, said, study_of(found, picks))


def _settled(found: Gathered) -> Source:
    """The source with validation images, test images of each real site, and images of usual size.

    A part is held out only if there are enough images. The user's own study keeps the size of its
    images.
    """
    source, data = found.source, found.source.sections["data"]
    if min(found.facts.height, found.facts.width) < SMALLEST and not source.own:
        source = source.changed(image=ENLARGED)
    if not source.own and found.facts.side > LARGEST and "image" not in data:
        source = source.changed(image=LARGEST)
    held = found.facts.counts.sum(axis=0)
    if min(found.facts.smallest, int(held[held > 0].min())) < ENOUGH:
        return source
    if "validation" not in data:
        source = source.changed(validation=HELD_OUT)
    if "test_per_client" not in data and not found.facts.simulated and not found.tested:
        source = source.changed(test_per_client=HELD_OUT)
    return source


def _about_images(found: Gathered) -> Iterator[str]:
    size = found.source.sections["data"].get("image")
    if size is not None and not found.source.own:
        yield (
            f"The study makes all images {size}×{size} pixels. If smaller details matter, give "
            "another size with --image."
        )
    if found.facts.simulated and found.columns and not found.source.own:
        names = ", ".join(map(printable, found.columns))
        yield f"The data have these columns: {names}. If one of them names the sites, use --column."


def with_cost(advice: Advice, data_root: Path | None, workers: int | None) -> Advice:
    costs = [expect(advice.study, pick.choice, data_root, workers) for pick in advice.picks]
    return replace(advice, costs=tuple(costs))


def _budget(pick: Pick) -> str:
    choice = pick.choice
    if choice.epochs is None:
        return "one exchange, no training at the clients"
    if choice.visits is not None:
        return (
            f"{choice.rounds} exchanges of each client, {choice.epochs} local epochs in each visit "
            f"of the net, {choice.backbone}"
        )
    if choice.rounds > 1:
        return f"{choice.rounds} rounds of {choice.epochs} local epoch"
    return f"one exchange, {choice.epochs} local epochs, {choice.backbone}"


def described(facts: Facts) -> dict[str, str]:
    """The facts in words."""
    sizes = facts.sizes
    labels = "with labels" if facts.labelled else "without labels"
    return {
        "clients": f"{len(facts.clients)} ({_who(facts)})",
        "training images": f"{facts.images:,}",
        "images per client": f"{sizes.min():,} to {sizes.max():,}, median {facts.median:,g}",
        "classes": f"{len(facts.classes)}, {_held(facts)} per client",
        "label skew": f"{facts.skew:.2f} (0: equal labels, near 1: a class per client)",
        "image size": f"{facts.height}×{facts.width}, {_colour(facts)}",
        "public images": f"{facts.public:,} {labels}" if facts.public else "none",
        "exchanges allowed": str(facts.exchanges),
        "upload allowed": "any" if facts.megabytes is None else f"{facts.megabytes:g} MB",
        "GPU": "yes" if facts.gpu else "no",
        "private": "yes" if facts.private else "no",
        "one net": "yes" if facts.one_net else "no",
    }


def _who(facts: Facts) -> str:
    if facts.simulated:
        return "simulated"
    names = ", ".join(map(printable, facts.clients[:NAMED]))
    return f"{names}, …" if len(facts.clients) > NAMED else names


def _colour(facts: Facts) -> str:
    return "grey" if facts.channels == 1 else "colour"


def _held(facts: Facts) -> str:
    held = (facts.counts > 0).sum(axis=1)
    low, high = int(held.min()), int(held.max())
    return str(low) if low == high else f"{low} to {high}"
