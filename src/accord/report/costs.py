"""The cost of each trial, teacher and map of a study, from the speeds that a rehearsal measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from accord.federation.briefing import public_studied, rehearse
from accord.federation.keys import kind_of_work
from accord.federation.map_run import MapRun
from accord.federation.measuring.agenda import FORWARD
from accord.federation.rehearsal.rehearsal import Rehearsal, name_of
from accord.federation.rehearsal.speed import Speed
from accord.federation.teacher_run import TeacherRun
from accord.federation.trial_run import TrialRun
from accord.federation.work import Run
from accord.report.durations import spoken


@dataclass(frozen=True)
class Cost:
    """The cost of one trial, teacher or map. Seconds are those of one core."""

    name: str
    rounds: int
    sizes: list[int]  # images per client
    note: str
    train_seconds: list[list[float]] = field(default_factory=list)  # of clients, round by round
    merge_seconds: float = 0.0  # the server's steps that wait for each other
    measure_seconds: float = 0.0
    upload_bytes: int = 0
    download_bytes: int = 0
    disk_bytes: int = 0
    is_trial: bool = True

    @property
    def seconds(self) -> float:
        return sum(map(sum, self.train_seconds)) + self.merge_seconds + self.measure_seconds

    @property
    def longest(self) -> float:
        """The time of the largest client of each round, and of the server between the rounds."""
        return sum(map(max, self.train_seconds)) + self.merge_seconds

    def cells(self, several_rounds: bool) -> tuple[str, ...]:
        low, high = min(self.sizes), max(self.sizes)
        return (
            self.name,
            *([str(self.rounds)] if several_rounds else []),
            str(len(self.sizes)),
            str(high) if low == high else f"{low}–{high}",
            spoken(self.seconds),
            f"{self.upload_bytes / 1e6:.1f}",
            f"{self.download_bytes / 1e6:.1f}",
            self.note,
        )


def costs_of(runs: Sequence[Run], found: Rehearsal) -> list[Cost]:
    """The cost of every run; finished work costs nothing."""
    costs = []
    for run in runs:
        if isinstance(run, MapRun):
            if not run.over:
                costs.append(_cost_of_map(run, found.drawing[run.folder.id]))
            continue
        speed = found.speeds[kind_of_work(run.trial)]
        if isinstance(run, TrialRun):
            costs.append(_cost(run, speed))
        elif isinstance(run, TeacherRun) and not run.over:
            costs.append(_cost_of_teacher(run, speed))
    return costs


def _cost_of_map(run: MapRun, seconds: float) -> Cost:
    return Cost(
        name=run.folder.id,
        rounds=1,
        sizes=[len(run.allocation.split.public) if run.map.needs_public else 0],
        note="draws the fixed features",
        merge_seconds=seconds,
        is_trial=False,
    )


def _cost_of_teacher(run: TeacherRun, speed: Speed) -> Cost:
    """The cost of the server's own training, which sends no messages."""
    budget, briefing = run.trial.setup.budget, _briefing_bytes(run)
    features = run.images * (speed.width * 4 + 8)
    kept = run.teachers * speed.upload_bytes + briefing
    return Cost(
        name=run.folder.id,
        rounds=1,
        sizes=[run.images],
        note="an earlier trial's nets" if run.source else "trains on the public images",
        train_seconds=[[speed.answering(run.images, budget) for _ in run.untrained]]
        if run.untrained
        else [],
        merge_seconds=run.images * speed.upload_image * run.passes / FORWARD,
        disk_bytes=features + (0 if run.source else kept),
        is_trial=False,
    )


def _cost(run: TrialRun, speed: Speed) -> Cost:
    budget, agenda = run.trial.setup.budget, run.measuring.agenda
    sizes = dict(zip(run.clients, run.allocation.partition.label_counts.sum(axis=1), strict=True))
    left = [] if run.over or run.twin else run.untrained()
    public = public_studied(run.trial, run.allocation)
    waiting: dict[int, list[float]] = {}
    for one, client in left:
        seconds = speed.answering(int(sizes[client]) + public, budget)
        waiting.setdefault(one.number, []).append(seconds)
    asked, briefing = sum(len(one.asked) for one in run.rounds), _briefing_bytes(run)
    # The record also holds a copy of the values of φ, and the total of all sums.
    sums = run.trial.recipe.uploads == "sums"
    fixed = briefing + 8 * speed.width**2 if sums else 0
    kept = asked if run.trial.options.keep_checkpoints else len(run.rounds[-1].asked)
    return Cost(
        name=run.folder.id,
        rounds=len(run.rounds),
        sizes=[int(size) for size in sizes.values()],
        note="finished already" if run.over else "shares a training above" if run.twin else "",
        train_seconds=list(waiting.values()),
        merge_seconds=_merge_seconds(run, speed),
        measure_seconds=agenda.measure_work() / agenda.forward * speed.forward,
        upload_bytes=speed.upload_bytes * asked,
        download_bytes=briefing * asked,
        disk_bytes=speed.upload_bytes * kept + briefing * len(run.rounds) + fixed,
    )


def _merge_seconds(run: TrialRun, speed: Speed) -> float:
    """The seconds of all merges that are missing, and of the starts of the rounds that are left."""
    agenda, public = run.measuring.agenda, len(run.allocation.split.public)
    merging = sum(
        speed.merges[name_of(fusion)].whole(
            len(agenda.scope.clients(at.round)), rule.work(public), speed.load
        )
        for at, names in agenda.missing()
        for fusion, rule in agenda.merges(at, names)
    )
    if speed.advance is None:
        return merging
    left = [one for one in run.rounds if not one.closed]
    method = run.trial.method
    if left and not run.measuring.scope.uses_final_state:
        left = left[:-1]  # nothing follows the last round
    return merging + sum(
        speed.advance.whole(len(one.asked), method.work(public), speed.load) for one in left
    )


def _briefing_bytes(run: Run) -> int:
    return len(rehearse(run.trial, run.allocation).to_bytes())
