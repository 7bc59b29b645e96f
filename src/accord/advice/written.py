"""The study that tests the advice: its sections, and its file with the reasons as comments."""

from __future__ import annotations

import hashlib
import textwrap
from pathlib import Path
from typing import Any

from accord.advice.choices import FEW_IMAGES, LONG, SHORT, Choice, net_for
from accord.advice.conditions import FOR_GPU
from accord.advice.facts import Facts
from accord.advice.gather import SEEDS, Gathered
from accord.advice.rule import Pick
from accord.core.errors import AccordError
from accord.core.files import write_atomic
from accord.core.reading import read_text
from accord.core.targets import refuse_file
from accord.core.text import one_line
from accord.core.yamls import MOST_YAML, to_yaml

Spec = dict[str, Any]
MARK = "# Written by accord advise, checksum "
WIDTH = 110


def study_of(gathered: Gathered, picks: tuple[Pick, Pick]) -> Spec:
    """The study as a mapping: both recipes, the references, and three seeds."""
    facts, sections = gathered.facts, gathered.source.sections
    choices = [pick.choice for pick in picks]
    return {
        "name": gathered.source.name,
        "data": _data(gathered, choices),
        "partition": sections.get("partition") or {"scheme": "dirichlet"},
        "net": sections.get("net") or {"backbone": _backbone(facts, choices)},
        "budget": {"epochs": _epochs(facts, choices), "batch": _batch(facts)},
        "recipes": [choice.entry for choice in choices],
        "references": facts.gpu or facts.images < FOR_GPU,
        "seeds": list(SEEDS),
    }


def _data(gathered: Gathered, choices: list[Choice]) -> Spec:
    """The user's images; with few epochs, without the strongest augmentation."""
    data = gathered.source.sections["data"]
    strong = gathered.augment == "reference"
    if strong and "augment" not in data and _epochs(gathered.facts, choices) <= LONG:
        return {**data, "augment": "light"}
    return dict(data)


def _backbone(facts: Facts, choices: list[Choice]) -> str:
    asked = [choice.backbone for choice in choices if choice.backbone is not None]
    return asked[0] if asked else net_for(facts, SHORT)


def _epochs(facts: Facts, choices: list[Choice]) -> int:
    """The epochs of one-shot recipes and of the references; recipes with rounds have their own."""
    one_shot = [c.epochs for c in choices if c.epochs is not None and c.rounds == 1]
    return one_shot[0] if one_shot else LONG if facts.images <= FEW_IMAGES else SHORT


def _batch(facts: Facts) -> int:
    """A batch with which a typical client does several steps per epoch."""
    return next(batch for batch, enough in BATCHES if facts.median >= enough)


BATCHES = ((128, 2_500), (64, 500), (32, 0))  # batch, and from how many images on


def text_of(study: Spec, picks: tuple[Pick, Pick], warnings: list[str]) -> str:
    """The study as YAML. The first line holds a checksum of all others."""
    first, second = picks
    body = "\n".join(
        [
            *_comment("Run it: accord run THIS_FILE. Its cost: accord run THIS_FILE --dry-run."),
            "#",
            *_comment(f"Recommendation: {_named(first)}. {first.rule.why}"),
            *_comment(f"Evidence: {evidence_of(first)}."),
            "#",
            *_comment(f"Runner-up: {_named(second)}. {second.rule.why}"),
            *_comment(f"Evidence: {evidence_of(second)}."),
            "#",
            *[line for warning in warnings for line in _comment(f"* {warning}")],
            "",
            *_sections(study),
            "",
        ]
    )
    return f"{MARK}{_checksum(body)}\n{body}"


def _sections(study: Spec) -> list[str]:
    """The YAML of the study, with a comment before each section that needs one."""
    lines = []
    for line in to_yaml(study).splitlines():
        key = line.partition(":")[0]
        references = REFERENCES if study["references"] else NO_REFERENCES
        lines += [*_comment(references if key == "references" else WHY.get(key, "")), line]
    return lines


REFERENCES = "References: all images in one place (central), and each client alone (local-only)."
NO_REFERENCES = (
    "Set it to true for references: all images in one place (central), and each client alone "
    "(local-only). They train nets on all images and take long without a GPU."
)
WHY = {
    "budget": "For recipes that train nets, and for the references.",
    "recipes": "The recommendation, and the runner-up.",
    "seeds": "One seed is not conclusive.",
}


def _named(pick: Pick) -> str:
    return f"{pick.choice.label}, fusion {pick.choice.fusion}"


def evidence_of(pick: Pick) -> str:
    found = pick.rule.evidence
    return f"{found.says} ({found.page}; {found.study})"


def _comment(text: str) -> list[str]:
    if not text:
        return []
    return [f"# {line}" for line in textwrap.wrap(one_line(text, 2_000), WIDTH)]


def _checksum(body: str) -> str:
    return hashlib.sha256(body.encode()).hexdigest()[:12]


def refuse_to_replace(path: Path) -> None:
    """Refuses a file that advise has not written, or that was changed since then."""
    problem = "was not written by `accord advise` or has been changed since"
    refuse_file(path, "--out", problem, _unchanged)


def _unchanged(path: Path) -> bool:
    try:
        first, _, body = read_text(path, MOST_YAML).partition("\n")
    except AccordError:
        return False
    return first == f"{MARK}{_checksum(body)}"


def write(path: Path, text: str) -> None:
    refuse_to_replace(path)
    write_atomic(path, text.encode())
