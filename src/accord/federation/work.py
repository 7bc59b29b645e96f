"""Work on its way through the engine: what a trial, a teacher and a map have in common.

A `Run` hands out the jobs that can be done now and takes their results. It keeps nothing that
matters in memory: what is finished is read off the files, so a run that was killed goes on where
it stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Literal

from accord.core.errors import AccordError
from accord.data.allocation import Allocation
from accord.engines.base import Job
from accord.federation.devices import choose_device, use_autocast
from accord.federation.tasks import Task
from accord.federation.tasks.answer import AnswerBriefing
from accord.messages import Briefing, Upload
from accord.record.folders import RoundFolder, TrialFolder
from accord.record.record import Record
from accord.study.study import Trial

Step = Sequence[Job[Task]] | None  # jobs to be done together; None: it has to wait for others


@dataclass
class Run(ABC):
    """A trial, its folder, and how far it is."""

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
    steps: Iterator[Step] | None = field(default=None, kw_only=True)

    kind: ClassVar[str]

    @property
    @abstractmethod
    def clients(self) -> tuple[str, ...]: ...

    @abstractmethod
    def work(self) -> float:
        """What is still to be done, in images passed through the net."""

    @abstractmethod
    def way(self) -> Iterator[Step]:
        """All that has to be done, from top to bottom.

        Each step hands out jobs, and the next one begins when they are done. Nothing follows a
        step with a failure.
        """

    @abstractmethod
    def end(self, status: Literal["finished", "failed"]) -> None:
        """Writes down how it ended."""

    @property
    def over(self) -> bool:
        return self.status != "open"

    def advance(self) -> None:
        """Goes on to the next step as long as nothing of this one is left."""
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

    def take(self, job: Job[Task], result: dict[str, Any]) -> None:  # noqa: ARG002 - files say it
        self.peak_memory = max(self.peak_memory, result.pop("peak_memory", 0))

    def take_failure(self, job: Job[Task], reason: str) -> None:
        self.failures.append(f"{job.task.subject}: {reason}")

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """After its end: lets go of what it held."""

    def tidy(self) -> None:  # noqa: B027 - a teacher leaves nothing
        """Removes what only an unfinished run needs."""

    @property
    def allocation_path(self) -> Path:
        return self.record.allocation(self.key)

    def save_allocation(self) -> None:
        """Writes who holds which images, for workers and for those who come after."""
        data, images = self.allocation.data, self.allocation.dataset.folder.name
        self.record.keep_data(data, images)
        self.allocation.save(self.allocation_path)

    # --- what tasks are made of ----------------------------------------------------------------

    @property
    def place(self) -> str:
        return self.record.place(self.folder)

    def write_briefing(self, folder: RoundFolder, briefing: Briefing) -> None:
        path = folder.briefing
        if not path.exists():
            briefing.save(path)
        elif path.read_bytes() != briefing.to_bytes():
            raise AccordError(
                f"{path} is not what this version of Accord sends for the same study, or it is "
                "damaged. Delete the trial's folder, or use another --out."
            )

    def question(
        self,
        name: str,
        client: int | None,
        size: float,
        *,
        number: int = 1,
        remembers: int | None = None,
    ) -> Job[Task]:
        """Asks one client to answer the briefing of a round; `client` None: on public images."""
        options = self.trial.options
        task = AnswerBriefing(
            place=self.place,
            allocation=self.key,
            name=name,
            client=client,
            round=number,
            remembers=remembers,
            device=choose_device(options.device, name),
            autocast=use_autocast(options, name),
            # Compiling costs more than a study's steps save.
            compile=False if options.compile == "auto" else options.compile,
        )
        return Job(task, size)

    def events_of(self, folder: RoundFolder, names: Iterable[tuple[Any, str]]) -> list[Any]:
        """The telemetry in the last uploads of a round, by what events call each client."""
        events = []
        for called, name in names:
            header = Upload.load(folder.upload(name, 0, last=True)).header
            told = [{"client": called, "round": folder.number, **e} for e in header.telemetry]
            events += told
        return events


END: list[Job[Task]] = []  # this very list stands for the end of the way
