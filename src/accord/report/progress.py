"""Progress displays: the live view on a terminal, plain lines in a pipe."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live

from accord.core.text import clean
from accord.report.durations import spoken
from accord.report.live.layout import View
from accord.report.live.lines import Lines
from accord.report.live.picture import Bar, Picture, TrialLine, standings
from accord.study.coordinates import title

if TYPE_CHECKING:
    from accord.federation.execute import TaskJob
    from accord.federation.work import Run

PLAIN_EVERY = 5.0  # seconds between two lines when the output is not a terminal


class Work:
    """The finished and the total work, in images, and the remaining time."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.total = sum(run.work() for run in runs if not run.over)
        self.done = 0.0
        self.current: dict[int, float] = {}
        self.began = time.monotonic()
        self.restored = 0.0  # work of an earlier, interrupted process, which took no time now
        self.first: tuple[float, float] | None = None  # time and work of the first message

    def share(self) -> float:
        return min(1.0, self._all() / max(self.total, 1e-9))

    def _all(self) -> float:
        return self.done + sum(self.current.copy().values())

    def heard(self, job: int, size: float, *, restored: bool = False) -> None:
        if restored:
            self.restored += size - self.current.get(job, 0.0)
        self.current[job] = size
        if self.first is None:
            # The time is counted from here, because workers first need seconds to start.
            self.first = (time.monotonic(), self._all() - self.restored)

    def left(self) -> float | None:
        """The remaining seconds; None until enough work is done for an estimate."""
        if self.first is None:
            return None
        passed, done = time.monotonic() - self.first[0], self._all() - self.restored - self.first[1]
        if done < 0.005 * self.total:
            return None
        return passed * max(0.0, self.total - self._all()) / done


class Silent:
    """A progress display that shows nothing."""

    def tell(self, line: str) -> None:
        pass

    @contextmanager
    def watching(self, runs: Sequence[Run]) -> Iterator[None]:  # noqa: ARG002
        yield

    def started(self, run: Run, job: TaskJob) -> None:
        pass

    def news(self, run: Run, job: TaskJob, share: float, *, restored: bool = False) -> None:
        pass

    def ended(self, run: Run, job: TaskJob, failure: str | None) -> None:
        pass

    def finished(self, run: Run) -> None:
        pass


class Plain(Silent):
    """Plain lines: one per finished trial and failure, and the progress every few seconds."""

    def __init__(self) -> None:
        self.work: Work | None = None
        self.spoke = time.monotonic()

    def tell(self, line: str) -> None:
        print(clean(line), file=sys.stderr, flush=True)

    @contextmanager
    def watching(self, runs: Sequence[Run]) -> Iterator[None]:
        self.work = Work(runs)
        todo = [run for run in runs if run.kind == "trial" and not run.over]
        self.tell(f"trials to run: {len(todo)}")
        yield

    def news(self, run: Run, job: TaskJob, share: float, *, restored: bool = False) -> None:
        work = self.work
        if work is None:
            return
        work.heard(id(job), share * job.size, restored=restored)
        if time.monotonic() - self.spoke > PLAIN_EVERY:
            self.spoke = time.monotonic()
            left = work.left()
            rest = f", about {spoken(left)} left" if left is not None else ""
            self.tell(f"{work.share():.0%} done{rest} ({run.folder.id})")

    def ended(self, run: Run, job: TaskJob, failure: str | None) -> None:
        if self.work is not None:
            self.work.current.pop(id(job), None)
            self.work.done += job.size
        if failure:
            self.tell(f"{run.folder.id}: {failure}")

    def finished(self, run: Run) -> None:
        for remark in run.remarks:
            self.tell(remark)
        self.tell(f"{run.folder.id}: {run.status}")


class Bars(Plain):
    """The live view on a terminal: the trials, what runs now, accuracies and the time."""

    def __init__(self) -> None:
        super().__init__()
        self.console = Console(stderr=True)
        self.name = ""
        self.asked = 0
        self.lines: Lines | None = None
        self.trials: dict[str, TrialLine] = {}
        self.bars: dict[int, Bar] = {}

    def tell(self, line: str) -> None:
        self.console.print(clean(line), highlight=False, markup=False)

    @contextmanager
    def watching(self, runs: Sequence[Run]) -> Iterator[None]:
        self.work = Work(runs)
        self.name = str(runs[0].record.path)
        self.asked = sum(run.kind == "trial" for run in runs)
        self.lines = Lines(max((run.trial.axes for run in runs), key=len))
        for run in runs:
            if run.over:
                self._look(run)
        live = Live(View(self.picture), console=self.console, refresh_per_second=4, transient=True)
        with live:
            yield

    def picture(self) -> Picture:
        """The state now. The thread that draws calls this, so it reads copies."""
        trials = tuple(self.trials.copy().values())
        work = self.work
        if work is None:
            return Picture(self.name)
        left = work.left()
        eta = f"about {spoken(left)} left" if left is not None else "measuring the speed"
        return Picture(
            name=self.name,
            trials=trials,
            asked=self.asked,
            bars=tuple(self.bars.copy().values()),
            share=work.share(),
            timing=f"{spoken(time.monotonic() - work.began)}, {eta}",
            standings=standings(trials),
        )

    def _look(self, run: Run) -> None:
        """Reads the files of a trial, if they have changed."""
        if run.kind == "trial" and self.lines is not None:
            line = self.lines.line(run.folder)
            if line is not None:
                self.trials[run.folder.id] = line

    def started(self, run: Run, job: TaskJob) -> None:
        self._look(run)
        what = f"{_round_of(run, job)}{job.task.about}"
        self.bars[id(job)] = Bar(title(run.trial), what, 0.0)

    def news(self, run: Run, job: TaskJob, share: float, *, restored: bool = False) -> None:  # noqa: ARG002
        if self.work is not None:
            self.work.heard(id(job), share * job.size, restored=restored)
        if id(job) in self.bars:
            self.bars[id(job)] = replace(self.bars[id(job)], share=share)

    def ended(self, run: Run, job: TaskJob, failure: str | None) -> None:
        super().ended(run, job, failure)
        self.bars.pop(id(job), None)
        self._look(run)

    def finished(self, run: Run) -> None:
        for remark in run.remarks:
            self.tell(remark)
        self._look(run)


def _round_of(run: Run, job: TaskJob) -> str:
    """The round of a task, for a trial with several rounds."""
    rounds, number = run.trial.method.rounds, getattr(job.task, "round", None)
    return f"round {number} of {rounds}, " if rounds > 1 and number else ""


def make_watcher() -> Plain:
    return Bars() if sys.stderr.isatty() else Plain()
