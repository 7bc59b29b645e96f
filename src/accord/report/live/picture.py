"""What the live view shows, without how it looks."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Status = Literal["running", "finished", "failed"]


@dataclass(frozen=True)
class Bar:
    """A piece of work that runs now, such as a client's training."""

    trial: str
    what: str  # such as `client 3`
    share: float  # the part that is done, from 0 to 1
    note: str = ""  # such as `epoch 4 of 6`


@dataclass(frozen=True)
class Point:
    """The last measured accuracy of a trial, for the first fusion of its recipe."""

    fusion: str
    epoch: int
    accuracy: float


@dataclass(frozen=True)
class TrialLine:
    """One trial that has begun."""

    title: str  # such as `fafi (α 0.1, seed 0)`
    group: str  # the same without the seed; the seeds of a group are averaged
    status: Status
    point: Point | None = None
    reason: str = ""  # why it failed
    changed: float = 0.0  # when its files changed last


@dataclass(frozen=True)
class Standing:
    """The accuracy so far of the trials that differ only in their seed."""

    group: str
    fusion: str
    finished: tuple[float, ...]  # accuracies of the finished trials
    running: tuple[Point, ...]  # last checkpoints of the running trials

    @property
    def best_known(self) -> float:
        """The value by which standings are sorted."""
        known = self.finished or tuple(point.accuracy for point in self.running)
        return statistics.mean(known)

    def accuracy(self) -> str:
        """Mean ± standard deviation over the finished seeds, in percent."""
        if not self.finished:
            return "–"
        mean = f"{100 * statistics.mean(self.finished):.1f}"
        if len(self.finished) == 1:
            return mean
        return f"{mean} ± {100 * statistics.stdev(self.finished):.1f}"

    def so_far(self) -> str:
        """The mean of the running trials at their last checkpoints, in percent."""
        if not self.running:
            return ""
        mean = statistics.mean(point.accuracy for point in self.running)
        epochs = sorted({point.epoch for point in self.running})
        at = f"{epochs[0]}" if len(epochs) == 1 else f"{epochs[0]} to {epochs[-1]}"
        return f"{100 * mean:.1f} at epoch {at}"


@dataclass(frozen=True)
class Picture:
    """The state of a study at one moment."""

    name: str
    trials: tuple[TrialLine, ...] = ()
    asked: int | None = None  # number of trials of the study; None: it cannot be known
    bars: tuple[Bar, ...] = ()
    share: float | None = None  # the part of the study that is done
    timing: str = ""  # the time so far, and the time that is left
    notes: tuple[str, ...] = ()  # sentences about what is wrong
    standings: tuple[Standing, ...] = ()
    written: bool = True  # whether a process writes the record; if not, nothing is running

    def count(self, status: Status) -> int:
        return sum(trial.status == status for trial in self.trials)

    @property
    def waiting(self) -> int | None:
        return None if self.asked is None else max(0, self.asked - len(self.trials))

    def headline(self) -> str:
        """The numbers of trials, in words."""
        of = "" if self.asked is None else f" of {max(self.asked, len(self.trials)):,}"
        parts = [f"{self.count('finished'):,}{of} trials finished"]
        waiting = self.waiting
        for count, word in (
            (self.count("running"), "running" if self.written else "interrupted"),
            (waiting, "waiting"),
            (self.count("failed"), "failed"),
        ):
            if count:
                parts.append(f"{count:,} {word}")
        if waiting is None:
            parts.append("an unknown number waiting")
        return ", ".join(parts)


def standings(trials: Iterable[TrialLine]) -> tuple[Standing, ...]:
    """The accuracy so far of each group and fusion, the best first."""
    finished: dict[tuple[str, str], list[float]] = {}
    running: dict[tuple[str, str], list[Point]] = {}
    for trial in trials:
        if trial.point is None or trial.status == "failed":
            continue
        key = (trial.group, trial.point.fusion)
        if trial.status == "finished":
            finished.setdefault(key, []).append(trial.point.accuracy)
        else:
            running.setdefault(key, []).append(trial.point)
    found = [
        Standing(*key, tuple(finished.get(key, ())), tuple(running.get(key, ())))
        for key in dict.fromkeys([*finished, *running])
    ]
    return tuple(sorted(found, key=lambda one: (-one.best_known, one.group)))


def by_relevance(trials: Iterable[TrialLine]) -> list[TrialLine]:
    """Failed trials first, then running ones, then the others; the latest first of each."""
    order = {"failed": 0, "running": 1, "finished": 2}
    return sorted(trials, key=lambda one: (order[one.status], -one.changed, one.title))
