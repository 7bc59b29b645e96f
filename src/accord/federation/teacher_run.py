"""Runs a teacher: brief it → train it on the public images → encode them.

RUN/teachers/<id> then holds a briefing and uploads like those of a trial, and features.safetensors
with the features of every public image. Trials that need the same teacher share it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from torch import Tensor

from accord.core.processor import processor
from accord.core.versions import versions
from accord.engines.base import Job
from accord.federation.bank_source import uploads_of
from accord.federation.briefing import opening
from accord.federation.devices import choose_device
from accord.federation.measuring.agenda import FORWARD
from accord.federation.standing import all_over, outcome_of, reasons_of
from accord.federation.tasks import Task
from accord.federation.tasks.encode import FEATURES, EncodePublic
from accord.federation.tasks.label import LABELS, LabelPublic
from accord.federation.teacher import NAME
from accord.federation.work import Run, Step
from accord.messages import GIVEN_LABELS, NET, Briefing, Features, Upload, unprefixed
from accord.objective.negatives import Rows
from accord.record.folders import TrialFolder

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun


@dataclass
class TeacherRun(Run):
    """Makes the public features of one seed; with a `source`, an earlier trial's nets make them.

    Several teachers have the same initial weights and different batches.
    """

    kind: ClassVar[str] = "teacher"
    source: TrialFolder | None = field(default=None, kw_only=True)
    teachers: int = field(default=1, kw_only=True)
    encodes: bool = field(default=True, kw_only=True)  # whether its features are needed
    before: TrialRun | None = field(default=None, kw_only=True)  # labels the public images
    labeller: str | None = field(default=None, kw_only=True)  # a saved model that does so instead

    def __post_init__(self) -> None:
        made = self.features.exists() if self.encodes else self._upload(NAME).exists()
        if made and self.folder.info().get("status") == "finished":
            self.status = "finished"

    @property
    def clients(self) -> tuple[str, ...]:
        return (NAME, *(f"{NAME}-{number}" for number in range(1, self.teachers)))

    @property
    def features(self) -> Path:
        return self.folder.path / FEATURES

    def _upload(self, client: str) -> Path:
        return self.folder.round(1).upload(client, self.trial.setup.budget.epochs, last=True)

    @property
    def images(self) -> int:
        return len(self.allocation.split.public)

    def work(self) -> float:
        return self.images * (len(self.untrained) * self.trial.setup.budget.epochs + self.passes)

    @property
    def untrained(self) -> list[str]:
        if self.over or self.source is not None:
            return []
        return [client for client in self.clients if not self._upload(client).exists()]

    @property
    def passes(self) -> float:
        """The cost of encoding an image, where training on an image costs 1."""
        if not self.encodes:
            return 0.0
        return FORWARD * (len(uploads_of(self.source)) if self.source else self.teachers)

    def rows(self) -> Rows:
        """The unit features of all public images, after the run is finished."""
        tensors = Features.load(self.features).tensors
        return Rows(tensors["features"], tensors["labels"])

    def weights(self) -> dict[str, Tensor]:
        """The first teacher's weights, after the run is finished."""
        return unprefixed(NET, Upload.load(self._upload(NAME)).tensors)

    def labels(self) -> Tensor | None:
        """The labels of the public images, if an earlier trial has made them."""
        if self.before is None and self.labeller is None:
            return None
        return Features.load(self.folder.path / LABELS).tensors["labels"]

    def way(self) -> Iterator[Step]:
        relabels = self.before is not None or self.labeller is not None
        if relabels and not (self.folder.path / LABELS).exists():
            while not all_over(self.before):
                yield None
            self.failures += reasons_of(self.before)
            if self.failures:
                return
            yield [self._labelling()]
        if self.source is None and not self.features.exists():
            yield self._training()
            self.folder.write_events(self.events_of(self.folder.round(1), self.clients))
        if self.encodes and not self.features.exists():
            yield [self._encoding()]

    def _training(self) -> list[Job[Task]]:
        found, labels = opening(self.trial, self.allocation), self.labels()
        if labels is not None:
            found = Briefing(found.header, {**found.tensors, GIVEN_LABELS: labels})
        self.write_briefing(self.folder.round(1), found)
        size = float(self.images * self.trial.setup.budget.epochs)
        return [self.question(client, None, size) for client in self.untrained]

    def _labelling(self) -> Job[Task]:
        task = LabelPublic(
            place=self.place,
            allocation=self.key,
            device=choose_device(self.trial.options.device, NAME),
            before=outcome_of(self.before) if self.before else None,
            model=self.labeller,
        )
        return Job(task, float(self.images))

    def _encoding(self) -> Job[Task]:
        task = EncodePublic(
            place=self.place,
            allocation=self.key,
            device=choose_device(self.trial.options.device, NAME),
            source=str(self.source.path.absolute()) if self.source else None,
        )
        return Job(task, self.images * self.passes)

    def end(self, status: Literal["finished", "failed"]) -> None:
        if status == "finished":
            shutil.rmtree(self.folder.path / "state", ignore_errors=True)
        self.folder.write_info(self._info(status))

    def _accuracy(self) -> float | None:
        """The first teacher's accuracy on the public images; None if there is no teacher's net."""
        path = self._upload(NAME)
        return Upload.load(path).header.train_accuracy if path.exists() else None

    def _info(self, status: str) -> dict[str, Any]:
        return {
            "id": self.folder.id,
            "status": status,
            "failures": self.failures,
            "images": self.allocation.dataset.folder.name,
            "public_images": self.images,
            "train_accuracy": self._accuracy(),
            "classes": self.allocation.classes,
            "seed": self.trial.seed,
            "source": str(self.source.path) if self.source else None,
            "peak_memory_bytes": max(
                self.peak_memory, self.folder.info().get("peak_memory_bytes") or 0
            ),
            "core_seconds": self.spent_before + self.spent,
            "config": {
                **self.trial.setup.model_dump(mode="json"),
                # The scheme has a part in the choice of the public images.
                "partition": self.allocation.scheme.model_dump(mode="json"),
                "recipe": self.trial.recipe.model_dump(mode="json"),
            },
            "versions": versions(),
            "processor": processor(),
        }
