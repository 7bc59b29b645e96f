"""Work on its way through the engine: what a trial and a teacher have in common.

A `Run` hands out the jobs that can be done now and takes their results. It keeps nothing that
matters in memory: what is finished is read off the files, so a run that was killed goes on where
it stopped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import torch

from accord.data.deal import Deal
from accord.engines.jobs import Job
from accord.errors import AccordError
from accord.messages import Briefing, Upload
from accord.record import Record, TrialFolder
from accord.study import Options, Trial


@dataclass
class Run(ABC):
    """A trial, its folder, and how far it is."""

    trial: Trial
    folder: TrialFolder
    deal: Deal
    deal_path: Path
    stage: str = field(default="new", kw_only=True)
    ready: deque[Job] = field(default_factory=deque, kw_only=True)
    pending: int = field(default=0, kw_only=True)
    failures: list[str] = field(default_factory=list, kw_only=True)
    remarks: list[str] = field(default_factory=list, kw_only=True)
    peak_memory: int = field(default=0, kw_only=True)

    kind: ClassVar[str]

    @property
    @abstractmethod
    def clients(self) -> tuple[str, ...]: ...

    @abstractmethod
    def work(self) -> float:
        """What is still to be done, in images passed through the net."""

    @abstractmethod
    def advance(self) -> None:
        """Moves to the next stage as long as nothing of this one is left."""

    @property
    def over(self) -> bool:
        return self.stage in ("finished", "failed")

    def take(self, job: Job, result: dict[str, Any]) -> None:  # noqa: ARG002 - files say it all
        self.peak_memory = max(self.peak_memory, result.pop("peak_memory", 0))

    def close(self) -> None:  # noqa: B027 - most hold nothing
        """After its end: lets go of what it held."""

    def tidy(self) -> None:  # noqa: B027 - a teacher leaves nothing
        """Removes what only an unfinished run needs."""

    def save_deal(self, record: Record) -> None:
        """Writes who holds which images, for workers and for those who come after."""
        record.keep_data(self.deal.data, self.deal.dataset.folder.name)
        self.deal.save(self.deal_path)

    def write_briefing(self, briefing: Briefing) -> None:
        path = self.folder.briefing
        if not path.exists():
            briefing.save(path)
        elif path.read_bytes() != briefing.to_bytes():
            raise AccordError(
                f"{path} is not what this version of Accord sends for the same study, or it is "
                "damaged. Delete the trial's folder, or use another --out."
            )

    def training_job(
        self, client: str, index: int | None, uploads: dict[int, Path], size: float
    ) -> Job:
        """Trains one client on its images; `index` None: on the public ones."""
        options = self.trial.options
        args = {
            "briefing": str(self.folder.briefing),
            "client": client,
            "index": index,
            "uploads": {str(epoch): str(path) for epoch, path in uploads.items()},
            "state": str(self.folder.state(client)),
            "device": choose_device(options.device, client),
            "autocast": use_autocast(options, client),
            # Compiling costs more than a study's steps save.
            "compile": False if options.compile == "auto" else options.compile,
        }
        return self.with_deal(Job("train", args, size))

    def with_deal(self, job: Job) -> Job:
        return Job(job.kind, {**job.args, "deal": str(self.deal_path)}, job.size)

    def write_events(self, uploads: Mapping[Any, Path]) -> None:
        """events.jsonl, whole and in order, from the telemetry in the uploads of each client."""
        events = []
        for index, path in uploads.items():
            header = Upload.load(path).header
            events += [{"client": index, **event} for event in header.telemetry]
        self.folder.write_events(events)


def choose_device(asked: str | dict[int | str, str], client: str) -> str:
    """The device of a client: as asked, or the best this machine has."""
    if isinstance(asked, dict):
        asked = {str(name): device for name, device in asked.items()}.get(client, "auto")
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def use_autocast(options: Options, client: str) -> bool:
    """As asked; by default where it pays, on CUDA."""
    if options.autocast == "auto":
        return choose_device(options.device, client).startswith("cuda")
    return options.autocast
