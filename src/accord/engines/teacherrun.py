"""A teacher on its way: brief → train on the public images → encode them.

RUN/teachers/<id> then holds a briefing and an upload like a trial's, and features.safetensors:
every public image, encoded. Trials that need the same teacher share it.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from accord.earlier import uploads_of
from accord.engines.jobs import Job
from accord.engines.measuring import FORWARD
from accord.engines.run import Run, choose_device
from accord.messages import Features, Upload
from accord.objective.negatives import Rows
from accord.record import TrialFolder
from accord.server import brief
from accord.teacher import NAME
from accord.versions import versions


@dataclass
class TeacherRun(Run):
    """The public features of one seed; `source`: an earlier trial whose nets encode them.

    Of several teachers, each has the same start and other batches.
    """

    kind: ClassVar[str] = "teacher"
    source: TrialFolder | None = field(default=None, kw_only=True)
    teachers: int = field(default=1, kw_only=True)

    def __post_init__(self) -> None:
        if self.features.exists() and self.folder.info().get("status") == "finished":
            self.stage = "finished"

    @property
    def clients(self) -> tuple[str, ...]:
        return (NAME, *(f"{NAME}-{number}" for number in range(1, self.teachers)))

    @property
    def features(self) -> Path:
        return self.folder.path / "features.safetensors"

    @property
    def uploads(self) -> list[Path]:
        return [self._upload(client) for client in self.clients]

    def _upload(self, client: str) -> Path:
        return self.folder.upload(client, self.trial.setup.budget.epochs, last=True)

    @property
    def images(self) -> int:
        return len(self.deal.split.public)

    def work(self) -> float:
        return self.images * (len(self.untrained) * self.trial.setup.budget.epochs + self.passes)

    @property
    def untrained(self) -> list[str]:
        if self.over or self.source is not None:
            return []
        return [client for client in self.clients if not self._upload(client).exists()]

    @property
    def passes(self) -> float:
        """What encoding an image takes, in training steps."""
        return FORWARD * (len(uploads_of(self.source)) if self.source else self.teachers)

    def rows(self) -> Rows:
        """The unit features of all public images, once it is finished."""
        tensors = Features.load(self.features).tensors
        return Rows(tensors["features"], tensors["labels"])

    def advance(self) -> None:
        while not self.over and not self.ready and not self.pending:
            if self.failures:
                self._end("failed")
            elif self.features.exists():
                self._end("finished")
            elif self.stage == "new" and self.source is None:
                self.write_briefing(brief(self.trial, self.deal))
                for client in self.untrained:
                    self.folder.events.unlink(missing_ok=True)
                    uploads = {self.trial.setup.budget.epochs: self._upload(client)}
                    size = float(self.images * self.trial.setup.budget.epochs)
                    self.ready.append(self.training_job(client, None, uploads, size))
                self.stage = "train"
            elif self.stage in ("new", "train"):
                if self.source is None:
                    several = dict(enumerate(self.uploads))
                    self.write_events(several if self.teachers > 1 else {None: self.uploads[0]})
                self.ready.append(self._encoding_job())
                self.stage = "encode"
            else:
                raise RuntimeError(f"{self.features} was not made")

    def _encoding_job(self) -> Job:
        files = uploads_of(self.source or self.folder)
        args = {
            "briefing": str((self.source or self.folder).briefing),
            "files": [str(path) for path in files.paths],
            "to": str(self.features),
            "device": choose_device(self.trial.options.device, NAME),
        }
        return self.with_deal(Job("encode", args, self.images * self.passes))

    def _end(self, stage: str) -> None:
        self.stage = stage
        if stage == "finished":
            shutil.rmtree(self.folder.path / "state", ignore_errors=True)
        self.folder.write_info(self._info(stage))

    def _accuracy(self) -> float | None:
        """The first one's on the public images; None if it failed, or for an earlier trial."""
        path = self._upload(NAME)
        return Upload.load(path).header.train_accuracy if path.exists() else None

    def _info(self, status: str) -> dict[str, Any]:
        return {
            "id": self.folder.id,
            "status": status,
            "failures": self.failures,
            "images": self.deal.dataset.folder.name,
            "public_images": self.images,
            "train_accuracy": self._accuracy(),
            "classes": self.deal.classes,
            "seed": self.trial.seed,
            "source": str(self.source.path) if self.source else None,
            "peak_memory_bytes": max(
                self.peak_memory, self.folder.info().get("peak_memory_bytes") or 0
            ),
            "config": {
                **self.trial.setup.model_dump(mode="json"),
                "recipe": self.trial.recipe.model_dump(mode="json"),
            },
            "versions": versions(),
        }
