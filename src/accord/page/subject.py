"""What a report is about: the trials of some runs, their lines, settings and the baseline.

Numbers come from the modules of `accord compare`, so that both show the same values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.core.names import shown
from accord.diagnosis.diagnose import only_trials
from accord.page.geometry import CLIENTS
from accord.record.rows import rows_of
from accord.record.summary import THRESHOLDS
from accord.report.compare.baseline import Baseline, Pair, in_order, paired
from accord.report.compare.lines import Line, lines_of
from accord.report.compare.runs import Measured
from accord.report.evidence import ODD, Evidence, RunEvidence, read_evidence

REFERENCES = ("local-only", "public-teacher", "central")
USUAL_BASELINE = "fafi"


@dataclass(frozen=True)
class Subject:
    """The content of a report, before it is divided into sections."""

    runs: list[RunEvidence]
    trials: list[Evidence]  # the chosen ones, also unfinished ones
    pairs: list[Pair]  # every line with its baseline, in order
    baseline: str  # the name of the baseline, or empty
    chosen: bool  # whether the user chose the baseline
    missing: list[str] = field(default_factory=list)
    paths: Sequence[Path] = ()  # as the user gave them

    @property
    def lines(self) -> list[Line]:
        return [pair.line for pair in self.pairs]

    def trials_of(self, line: Line) -> dict[int, Evidence]:
        """Seed → the trial of a line."""
        known = {(trial.run, trial.id): trial for trial in self.trials}
        return {seed: known[one.run, one.trial] for seed, one in line.seeds.items()}


def is_reference(line: Line) -> bool:
    return line.recipe in REFERENCES


def name_of(line: Line) -> str:
    """The name of a line for people: its recipe and fusion, and its run if that matters."""
    at = f" @{line.run}" if line.run else ""
    return f"{line.recipe} ({line.fusion}){at}"


def read_subject(paths: Sequence[Path], trial: str | None, baseline: str | None) -> Subject:
    """Reads runs. Only folders that are no record, and unknown names, raise an AccordError."""
    runs = read_evidence(paths)
    missing = [sentence for run in runs for sentence in run.missing]
    missing += [sentence for run in runs for sentence in _not_begun(run)]
    trials = [one for run in only_trials(runs, trial) for one in run.trials]
    for one in trials:
        missing += one.damaged_uploads(one.clients[:CLIENTS])
    lines = lines_of(_measured(runs, trials, missing), THRESHOLDS)
    asked = baseline or _usual(runs, lines)
    pairs = _paired(lines, asked, strict=baseline is not None, missing=missing)
    told = next((pair.line.name for pair in pairs if pair.is_baseline), asked)
    return Subject(runs, trials, pairs, told, baseline is not None, missing, paths)


def _not_begun(run: RunEvidence) -> list[str]:
    """Says how many trials of the study have no folder yet, if its study can still be read."""
    from accord.study.study import load_study

    try:
        asked = len(load_study(run.record.path / "study.yaml").trials())
    except ODD:
        return []
    count = asked - len(run.record.trials())
    are = "trial has" if count == 1 else "trials have"
    return [f"{count} {are} not begun in {shown(run.label)}."] if count > 0 else []


def _measured(
    runs: Sequence[RunEvidence], trials: Sequence[Evidence], missing: list[str]
) -> list[Measured]:
    """The results of finished trials, by trial and fusion."""
    axes = tuple(dict.fromkeys(axis for run in runs for axis in _axes(run)))
    found: dict[tuple[Any, ...], Measured] = {}
    for trial in trials:
        if trial.status != "finished" or trial.seed is None:
            continue
        groups: dict[str, list[Any]] = {}
        rows = _rows(trial, axes)
        if not all(map(_sound, rows)):
            missing.append(f"The setting of {shown(trial.id)} is damaged.")
            continue
        for row in rows:
            groups.setdefault(row["fusion"], []).append(row)
        for rows in groups.values():
            one = Measured(trial.run, rows, trial.info, axes)
            key = (one.run, one.dataset, *map(str, one.setting.values()), one.seed)
            if key in found:
                missing.append(
                    f"{shown(trial.id)} and {shown(found[key].last['trial'])} are the same trial; "
                    "only the second one is shown. Remove one of these folders."
                )
            found.setdefault(key, one)
    return list(found.values())


def _axes(run: RunEvidence) -> list[str]:
    try:
        return list(run.record.axes())
    except ODD:
        return []


def _rows(trial: Evidence, axes: Sequence[str]) -> list[Any]:
    """The rows of a trial with a column for the axes of all runs; its own rows at least."""
    if not trial.rows:
        return []
    try:
        return list(rows_of(trial.folder, axes))
    except ODD:
        return [{**dict.fromkeys(axes), **row} for row in trial.rows]


def _sound(row: Mapping[str, Any]) -> bool:
    """Whether the values by which lines are sorted have the types that they should have."""
    texts = all(isinstance(row[key], str) for key in ("dataset", "partition", "recipe", "fusion"))
    numbers = all(isinstance(row[key], int) for key in ("clients", "round", "epoch"))
    return texts and numbers and (row["alpha"] is None or isinstance(row["alpha"], int | float))


def _usual(runs: Sequence[RunEvidence], lines: Sequence[Line]) -> str:
    """The baseline if none is chosen: `fafi` if it is there, else the study's first recipe."""
    there = [line.recipe for line in lines if not is_reference(line)]
    there = there or [line.recipe for line in lines]
    asked = [name for run in runs for name in recipes_of(run) if name in there]
    return USUAL_BASELINE if USUAL_BASELINE in there else next(iter([*asked, *there]), "")


def recipes_of(run: RunEvidence) -> list[str]:
    """The names of the recipes of a study, in its order, as far as they can be read."""
    found = run.asked.get("recipes")
    named = [one.get("name") for one in found or () if isinstance(one, dict)]
    return [str(name) for name in named if name]


def _paired(lines: Sequence[Line], asked: str, *, strict: bool, missing: list[str]) -> list[Pair]:
    if not lines:
        if strict:
            missing.append(f"The baseline {shown(asked)} has no finished trial.")
        return []
    try:
        return in_order(paired(lines, Baseline.parse(asked)))
    except AccordError as error:
        if strict:
            raise
        missing.append(f"There are no differences to a baseline: {error}")
        return in_order([Pair(line, None, str(error)) for line in lines])
