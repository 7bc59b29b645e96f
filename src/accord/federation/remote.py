"""A client's work on another machine: the request, and the check of what comes back.

The engine carries both. The request names the client and, if the client has no images of its own,
the dataset and the partition of which it shall use its part. The answer holds one upload per
checkpoint, which is checked and only then written into the record.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from accord.attacks.settings import AttackConfig
from accord.checks import check_upload
from accord.core.config import Config
from accord.core.errors import AccordError, ClientError
from accord.core.files import write_atomic
from accord.core.names import shown
from accord.core.text import one_line
from accord.core.versions import versions
from accord.data.allocation import Allocation, open_allocation
from accord.data.schemes import Partitioned
from accord.data.settings import DataConfig, ShiftConfig
from accord.federation.tasks import Task
from accord.federation.tasks.answer import AnswerBriefing
from accord.federation.tasks.base import briefing_at
from accord.messages import Briefing, Upload, expected_upload
from accord.record.folders import LONGEST, RoundFolder
from accord.record.record import Record

BRIEFING = "briefing"
Seconds = Annotated[float, Field(ge=0, le=LONGEST)]
SLACK = 4_000_000  # bytes of an upload besides its tensors: the header with its telemetry


class Share(Config):
    """The part of a dataset that a client without images of its own uses."""

    data: DataConfig
    scheme: Partitioned
    seed: int
    shift: ShiftConfig
    attack: AttackConfig
    images: str  # the name of the decoded dataset, a hash of its content
    partition: str  # the hash of the partition


class Request(Config):
    """What the server asks of one client, besides the briefing."""

    versions: dict[str, str]
    client: str
    remembers: int | None = None
    share: Share | None = None  # None: the client has its own images


class Answer(Config):
    """What a client says besides its uploads; `error` if it could not answer."""

    versions: dict[str, str] = Field(default={})
    error: str | None = None
    peak_memory: int = Field(0, ge=0)
    seconds: dict[str, Seconds] = Field(default={})  # epoch → its core time


class Desk:
    """The server's desk: it writes requests and accepts answers, for one record."""

    def __init__(self, record: Record) -> None:
        self.record = record
        self._allocations: dict[str, Allocation] = {}

    def addressee(self, task: Task) -> str | None:
        """The client that does a task; None if it is the server's own work."""
        return task.name if isinstance(task, AnswerBriefing) and not task.at_server else None

    def request(self, task: AnswerBriefing) -> tuple[dict[str, Any], dict[str, bytes]]:
        """The text and the parts of the letter to the client."""
        request = Request(
            versions=versions(),
            client=task.name,
            remembers=task.remembers,
            share=self._share(task),
        )
        parts = {BRIEFING: self._folder(task).briefing.read_bytes()}
        return request.model_dump(mode="json"), parts

    def _share(self, task: AnswerBriefing) -> Share | None:
        allocation = self._allocation(task)
        # A site has its own images, which the server does not know.
        if allocation.scheme.elsewhere or task.client is None:
            return None
        return Share(
            data=allocation.data,
            scheme=allocation.scheme,
            seed=allocation.seed,
            shift=allocation.shift,
            attack=allocation.attack,
            images=allocation.dataset.folder.name,
            partition=allocation.partition.hash,
        )

    def _allocation(self, task: AnswerBriefing) -> Allocation:
        if task.allocation not in self._allocations:
            path = self.record.allocation(task.allocation)
            self._allocations[task.allocation] = open_allocation(path)
        return self._allocations[task.allocation]

    def _folder(self, task: AnswerBriefing) -> RoundFolder:
        return self.record.folder(task.place).round(task.round)

    # --- the answer ----------------------------------------------------------------------------

    def accept(
        self, task: AnswerBriefing, text: dict[str, Any], parts: dict[str, bytes]
    ) -> dict[str, Any]:
        """Checks the uploads and writes them into the record. Raises ClientError if one is bad."""
        try:
            answer = Answer.model_validate(text)
        except ValueError as error:
            raise ClientError(f"its answer is no answer: {' '.join(str(error).split())}") from None
        if answer.error is not None:
            raise ClientError(one_line(answer.error))
        folder = self._folder(task)
        briefing = briefing_at(folder.briefing)
        header = briefing.header
        epochs = [header.first_epoch + epoch for epoch in header.budget.checkpoints]
        names = [str(epoch) for epoch in epochs]
        if sorted(parts) != sorted(names):
            raise ClientError(
                f"expected uploads after the epochs {', '.join(names)}; found "
                f"{one_line(', '.join(sorted(parts)) or 'none')}."
            )
        for epoch in epochs:
            self._check(task, parts[str(epoch)], epoch, briefing)
        round_epochs = range(header.first_epoch + 1, epochs[-1] + 1)
        told = answer.seconds
        known = {e: told[str(e)] for e in round_epochs if str(e) in told}
        folder.write_seconds(task.name, known)
        for epoch in epochs:  # the last one is written last: it says that the client has answered
            path = folder.upload(task.name, epoch, last=epoch == epochs[-1])
            write_atomic(path, parts[str(epoch)])
        return {"peak_memory": answer.peak_memory, "versions": answer.versions}

    def _check(self, task: AnswerBriefing, content: bytes, epoch: int, briefing: Briefing) -> None:
        where = f"its upload after epoch {epoch}"
        size = sum(t.numel() * t.element_size() for t in expected_upload(briefing).values())
        if len(content) > size + SLACK:
            raise ClientError(
                f"{where} was refused: expected about {size:,} bytes; found {len(content):,}."
            )
        try:
            upload = Upload.from_bytes(content, where)
            upload.check_form(briefing, where)
            self._check_owner(task, upload, epoch)
            check_upload(upload, briefing, where)
        except AccordError as error:
            raise ClientError(f"its upload was refused: {one_line(str(error))}") from None

    def _check_owner(self, task: AnswerBriefing, upload: Upload, epoch: int) -> None:
        """Refuses another client's upload, and other label counts than those of its images."""
        header = upload.header
        if (header.client, header.epoch) != (task.name, epoch):
            raise AccordError(
                f"expected that of client {shown(task.name)} after epoch {epoch}; found "
                f"{header.client[:100]!r} after epoch {header.epoch}."
            )
        partition = self._allocation(task).partition
        counts = partition.label_counts[partition.names.index(task.name)].tolist()
        found = upload.tensors["label_counts"].tolist()
        if any(counts) and found != counts:
            raise AccordError(f"expected the label counts {counts} of its images; found {found}.")


def progress_file(folder: Path) -> Path:
    """Where a client writes the share of its work that is done."""
    return folder / "progress.json"
