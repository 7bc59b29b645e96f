"""The baseline of each line, and the differences to it, paired by seed."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from accord.core.errors import AccordError, nearest
from accord.report.compare.lines import Line
from accord.report.comparison import place
from accord.study.coordinates import POOLED


@dataclass(frozen=True)
class Baseline:
    """`RECIPE`, `RECIPE:FUSION`, and `@RUN` after either of them, as the user writes it."""

    recipe: str
    fusion: str | None
    run: str | None

    @classmethod
    def parse(cls, text: str) -> Baseline:
        name, _, run = text.partition("@")
        recipe, _, fusion = name.partition(":")
        return cls(recipe, fusion or None, run or None)


@dataclass(frozen=True)
class Pair:
    """A line with its baseline; `other` is None if it has none, and `why` says the reason."""

    line: Line
    other: Line | None
    why: str = ""

    @property
    def is_baseline(self) -> bool:
        return self.other is self.line

    @property
    def differences(self) -> dict[int, float]:
        """Seed → final accuracy minus that of the baseline, for the seeds that both have."""
        if self.other is None:
            return {}
        other = self.other.seeds
        return {
            seed: one.summary.final - other[seed].summary.final
            for seed, one in self.line.seeds.items()
            if seed in other
        }


def paired(lines: Sequence[Line], baseline: Baseline) -> list[Pair]:
    """Every line with its baseline."""
    candidates = _candidates(lines, baseline)
    return [_pair(line, candidates) for line in lines]


def in_order(pairs: Sequence[Pair]) -> list[Pair]:
    """By setting, then references last, then by falling final accuracy."""
    return sorted(
        pairs, key=lambda p: place(p.line.setting, statistics.mean(p.line.values("final")))
    )


def _candidates(lines: Sequence[Line], baseline: Baseline) -> list[Line]:
    """The lines that can be a baseline: in each run, one fusion of the recipe."""
    runs = list(dict.fromkeys(seed.run for line in lines for seed in line.seeds.values()))
    if baseline.run is not None and baseline.run not in runs:
        _refuse("run", baseline.run, "the runs", runs)
    # If no line belongs to one run only, a run in the baseline makes no difference.
    chosen = [line for line in lines if baseline.run is None or line.run in ("", baseline.run)]
    of_recipe = [line for line in chosen if line.recipe == baseline.recipe]
    if not of_recipe:
        _refuse("baseline", baseline.recipe, "the recipes", (line.recipe for line in chosen))
    if baseline.fusion is not None:
        found = [line for line in of_recipe if line.fusion == baseline.fusion]
        if not found:
            known = (line.fusion for line in of_recipe)
            _refuse("fusion", baseline.fusion, f"the fusions of {baseline.recipe}", known)
        return found
    first: dict[str, str] = {}  # run → the first fusion of the recipe
    for line in of_recipe:
        first.setdefault(line.run, line.fusion)
    return [line for line in of_recipe if line.fusion == first[line.run]]


def _refuse(what: str, name: str, known_as: str, names: Iterable[str]) -> None:
    known = list(dict.fromkeys(names))
    hint = nearest(name, known) or "."
    raise AccordError(
        f"unknown {what} {name!r}{hint} In the finished trials, {known_as} are: {', '.join(known)}."
    )


def _pair(line: Line, candidates: list[Line]) -> Pair:
    if any(other is line for other in candidates):
        return Pair(line, line)
    same = [other for other in candidates if other.dataset == line.dataset]
    if not same:
        return Pair(line, None, "the baseline has no trial on its dataset")
    for fits in (_exactly, _without_rounds):
        found = [other for other in same if fits(line, other)]
        found = [other for other in found if other.run == line.run] or found
        if len({other.run for other in found}) > 1:
            raise AccordError(
                f"the baseline of {line.name} is ambiguous: {_listed(found)} have its setting. "
                f"Choose a run, for example --baseline {found[0].name}."
            )
        if len(found) == 1:
            return Pair(line, found[0])
        if found:
            return Pair(line, None, "the baseline has several settings that fit")
    return Pair(line, None, "the baseline has no trial in its setting")


def _listed(lines: Sequence[Line]) -> str:
    return " and ".join(line.name for line in lines)


def _exactly(line: Line, other: Line) -> bool:
    """Whether two lines have the same setting; pooled images have no partition."""
    return _fits(line, other, lambda axis: not axis.startswith("partition."))


def _without_rounds(line: Line, other: Line) -> bool:
    """As `_exactly`, but the settings of rounds do not matter if one of both has a single round."""
    if min(line.rounds, other.rounds) > 1:
        return False
    return _fits(line, other, lambda axis: not axis.startswith(("partition.", "rounds.")))


def _fits(line: Line, other: Line, counts: Callable[[str], bool]) -> bool:
    anywhere = POOLED in (line.setting["partition"], other.setting["partition"])
    if not anywhere and _partition(line) != _partition(other):
        return False
    # None: the trial does not depend on this axis, so that it is paired with every value.
    values = ((v, other.axes.get(axis)) for axis, v in line.axes.items() if counts(axis))
    return all(None in pair or pair[0] == pair[1] for pair in values)


def _partition(line: Line) -> list[Any]:
    """The settings of the partition; a fusion that leaves clients out has the same partition."""
    scheme = line.setting["partition"].removeprefix(f"{POOLED} ")
    axes = [value for axis, value in line.axes.items() if axis.startswith("partition.")]
    return [scheme, line.setting["alpha"], line.dealt, *axes]
