"""The base class of the runs of trials, teachers and maps.

A `Run` gives out the jobs that can be done now and takes their results. Its progress is read from
the files of the record, so that a run that was killed continues where it stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

from accord.core.errors import AccordError
from accord.core.reading import read_plain
from accord.data.allocation import Allocation
from accord.engines.base import Job
from accord.federation.devices import choose_device, use_autocast
from accord.federation.tasks import Task
from accord.federation.tasks.answer import AnswerBriefing
from accord.messages import Briefing, Upload
from accord.record.folders import RoundFolder, TrialFolder
from accord.record.record import Record
from accord.study.study import Trial

Step = Sequence[Job[Task]] | None  # jobs that can run together; None: wait for another run


@dataclass
class Run(ABC):
    """A trial, its folder and its progress."""

    trial: Trial
    record: Record
    folder: TrialFolder
    allocation: Allocation
    key: str  # of the allocation
    status: Literal["open", "finished", "failed"] = field(default="open", kw_only=True)
    ready: deque[Job[Task]] = field(default_factory=deque, kw_only=True)
    pending: int = field(default=0, kw_only=True)
    failures: list[str] = field(default_factory=list, kw_only=True)
    remarks: list[str] = field(default_factory=list, kw_only=True)
    peak_memory: int = field(default=0, kw_only=True)
    spent: float = field(default=0.0, kw_only=True)  # core seconds of the jobs that are done
    steps: Iterator[Step] | None = field(default=None, kw_only=True)

    kind: ClassVar[str]

    @property
    @abstractmethod
    def clients(self) -> tuple[str, ...]: ...

    @abstractmethod
    def work(self) -> float:
        """The remaining work, measured in images passed through the net."""

    @abstractmethod
    def way(self) -> Iterator[Step]:
        """The steps of the run, in order.

        Each step gives out jobs, and the next step begins when they are done. After a step with a
        failure the run ends.
        """

    @abstractmethod
    def end(self, status: Literal["finished", "failed"]) -> None:
        """Writes the final status to the record."""

    @property
    def over(self) -> bool:
        return self.status != "open"

    def advance(self) -> None:
        """Begins the next step if all jobs of the current step are done."""
        if self.steps is None:
            self.steps = self.way()
        while not self.over and not self.ready and not self.pending:
            step = END if self.failures else next(self.steps, END)
            if step is None:
                return
            if step is not END:
                self.ready.extend(step)
                continue
            self.status = "failed" if self.failures else "finished"
            self.end(self.status)

    def take(self, job: Job[Task], result: dict[str, Any]) -> None:  # noqa: ARG002
        self.peak_memory = max(self.peak_memory, result.pop("peak_memory", 0))
        self.spent += result.pop("core_seconds", 0.0)

    @cached_property
    def spent_before(self) -> float:
        """The core seconds of earlier commands, as in trial.json before this command changes it."""
        return float(self.folder.info().get("core_seconds") or 0.0)

    def take_failure(self, job: Job[Task], reason: str) -> None:
        self.failures.append(f"{job.task.subject}: {reason}")

    def close(self) -> None:  # noqa: B027 - most runs hold nothing
        """Called after the end of the run, to release what it holds."""

    def tidy(self) -> None:  # noqa: B027 - a teacher has no such files
        """Removes files that only an unfinished run needs."""

    @property
    def allocation_path(self) -> Path:
        return self.record.allocation(self.key)

    def save_allocation(self) -> None:
        """Writes the images of each client to the record, for workers and for later runs."""
        data, images = self.allocation.data, self.allocation.dataset.folder.name
        self.record.keep_data(data, images)
        self.allocation.save(self.allocation_path)

    # --- making tasks --------------------------------------------------------------------------

    @property
    def place(self) -> str:
        return self.record.place(self.folder)

    def write_briefing(self, folder: RoundFolder, briefing: Briefing) -> None:
        path = folder.briefing
        if not path.exists():
            briefing.save(path)
        elif read_plain(path) != briefing.to_bytes():
            raise AccordError(
                f"{path} is damaged, or another version of Accord made it. Delete the trial's "
                "folder, or choose another folder for the record."
            )

    def question(
        self,
        name: str,
        client: int | None,
        size: float,
        *,
        number: int = 1,
        remembers: int | None = None,
        at_server: bool = False,
    ) -> Job[Task]:
        """The job of one client in a round; if `client` is None, it uses the public images."""
        options = self.trial.options
        task = AnswerBriefing(
            place=self.place,
            allocation=self.key,
            name=name,
            client=client,
            round=number,
            remembers=remembers,
            at_server=at_server or client is None,
            device=choose_device(options.device, name),
            autocast=use_autocast(options, name),
            # Compiling takes more time than it saves in a study.
            compile=False if options.compile == "auto" else options.compile,
        )
        return Job(task, size)

    def events_of(self, folder: RoundFolder, clients: Iterable[str]) -> list[dict[str, Any]]:
        """The telemetry in the last uploads of some clients in a round, with its seconds."""
        events = []
        for name in clients:
            spent = folder.read_seconds(name)
            about = {"client": name, "round": folder.number}
            for event in Upload.load(folder.upload(name, 0, last=True)).header.telemetry:
                events.append({**about, **event, "seconds": spent.get(event["epoch"])})
        return events


END: list[Job[Task]] = []  # this list object marks the end of the steps
