"""What was asked, in a sentence, and what is missing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from accord.attacks.settings import NONE
from accord.core.names import listed, shown
from accord.page.grid import places_of
from accord.page.parts import Box, Part, Prose
from accord.page.section import section
from accord.page.subject import Subject, is_reference, recipes_of
from accord.report.comparison import short
from accord.report.evidence import Evidence
from accord.study.coordinates import is_pooled

MOST = 30  # sentences about what is missing


@section("question", "The question", 10)
def question(subject: Subject) -> list[Part]:
    parts: list[Part] = [Prose(_asked(subject))]
    answer = _answer(subject)
    if answer:
        parts.append(Prose(answer))
    if subject.missing:
        more = len(subject.missing) - MOST
        lines = [*subject.missing[:MOST], *([f"… and {more} more."] if more > 0 else [])]
        parts.append(Box("Missing from this report", lines))
    return parts


def _asked(subject: Subject) -> str:
    """The study in a sentence, from the trials that were read."""
    trials = subject.trials
    if not trials:
        return "No trial could be read."
    recipes = dict.fromkeys(name for run in subject.runs for name in recipes_of(run))
    there = dict.fromkeys(trial.recipe for trial in trials)
    names = [name for name in recipes if name in there] + [n for n in there if n not in recipes]
    own = [name for name in names if name not in ("central", "local-only", "public-teacher")]
    references = [name for name in names if name not in own]
    seeds = {trial.seed for trial in trials if trial.seed is not None}
    what = f"Which of {_counted(own, 'recipe')} is best" if len(own) > 1 else _single(own)
    word = "reference" if len(references) == 1 else "references"
    attacks = dict.fromkeys(name for trial in trials if (name := _attack(trial)))
    hostile = f" Some clients are hostile by design: {_joined(list(attacks))}." if attacks else ""
    beside = f", beside the {word} {_joined(references)}" if references else ""
    return (
        f"{what} on {_where(subject)}? Measured with {_number(len(seeds), 'seed')}{beside}: "
        f"{_number(len(trials), 'trial')}.{hostile}"
    )


def _attack(trial: Evidence) -> str:
    """The attack that a trial simulates; empty if all clients are honest."""
    asked = trial.config.get("attack")
    name = str(asked.get("name", NONE)) if isinstance(asked, Mapping) else NONE
    return "" if name == NONE else name


def _single(names: Sequence[str]) -> str:
    return f"How good is {shown(names[0])}" if names else "How good are the references"


def _where(subject: Subject) -> str:
    """The data and the partitions of all trials."""
    federated = [t for t in subject.trials if not is_pooled(str(t.info.get("partition")))]
    trials = federated or subject.trials
    datasets = dict.fromkeys(str(t.info.get("dataset")) for t in trials)
    schemes = dict.fromkeys(str(t.info.get("partition")) for t in trials)
    clients = dict.fromkeys(str(t.info.get("clients")) for t in trials)
    alphas = sorted({t.alpha for t in trials if t.alpha is not None}, reverse=True)
    if not federated:
        return _joined(list(datasets))
    at = f" with α = {_joined([short(a) for a in alphas])}" if alphas else ""
    return (
        f"{_joined(list(datasets))}, dealt to {_joined(list(clients))} clients by the partition "
        f"{_joined(list(schemes))}{at}"
    )


def _answer(subject: Subject) -> str:
    """The best recipe of each setting, in a sentence."""
    told = []
    for place in places_of(subject)[:6]:
        best = place.best
        if best is None or is_reference(best):
            continue
        values = best.values("final")
        mean = 100 * sum(values) / len(values)
        told.append(f"{place.words}: {best.recipe} ({best.fusion}) with {mean:.1f} %")
    if not told:
        return ""
    return f"Highest mean accuracy: {'; '.join(told)}."


def _counted(names: Sequence[str], word: str) -> str:
    return f"{_number(len(names), word)} ({listed(names, 12)})"


def _number(count: int, word: str) -> str:
    return f"{count} {word}" if count == 1 else f"{count} {word}s"


def _joined(names: Sequence[str]) -> str:
    told = [shown(name) for name in names[:12]] + (["…"] if len(names) > 12 else [])
    return " and ".join([", ".join(told[:-1]), told[-1]] if len(told) > 1 else told)
