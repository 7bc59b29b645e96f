"""Trials that differ only in their seed, also unfinished ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from accord.core.names import shown
from accord.page.subject import Subject
from accord.report.compare.runs import Measured
from accord.report.comparison import short
from accord.report.evidence import ODD, Evidence
from accord.study.coordinates import axis_labels


@dataclass(frozen=True)
class Kind:
    """A recipe in a setting, with its trials in the order of their seeds."""

    recipe: str
    setting: str  # in words, such as `α 0.1, epochs 5`
    trials: list[Evidence] = field(repr=False)

    @property
    def words(self) -> str:
        return ", ".join(filter(None, [shown(self.recipe), self.setting]))

    @property
    def first(self) -> Evidence:
        return self.trials[0]

    @property
    def accuracies(self) -> list[float]:
        """The accuracy of every seed at its last checkpoint, of the recipe's first fusion."""
        found = [fusion_of(trial) for trial in self.trials]
        return [float(one["accuracy"]) for one in found if one]


def fusion_of(trial: Evidence) -> dict[str, Any]:
    """The figures of the first fusion at the last checkpoint; empty if nothing was measured."""
    measured = (trial.final or {}).get("fusions") or {}
    return next(iter(measured.values()), {})


def kinds_of(subject: Subject) -> list[Kind]:
    """All recipes in all settings, in the order of the record."""
    several = len(subject.runs) > 1
    groups: dict[tuple[str, ...], list[Evidence]] = {}
    for trial in subject.trials:
        asked = Measured(trial.run, [], trial.info, ()).config
        key = (trial.run, trial.recipe, str(trial.alpha), asked)
        groups.setdefault(key, []).append(trial)
    axes = {run.label: _axes(run.record) for run in subject.runs}
    return [
        Kind(
            trials[0].recipe,
            _setting(trials[0], axes[trials[0].run], trials[0].run if several else ""),
            sorted(trials, key=lambda one: one.seed or 0),
        )
        for trials in groups.values()
    ]


def _axes(record: Any) -> list[str]:
    try:
        return list(record.axes())
    except ODD:
        return []


def _setting(trial: Evidence, axes: Sequence[str], run: str) -> str:
    told = [f"α {short(trial.alpha)}"] if trial.alpha is not None else []
    labels = axis_labels(axes)
    for axis in axes:
        section, _, key = axis.partition(".")
        values = trial.config.get(section)
        if isinstance(values, dict) and key in values and axis != "partition.alpha":
            told.append(f"{labels[axis]} {shown(short(values[key]))}".strip())
    return ", ".join([*told, *([shown(run)] if run else [])])
