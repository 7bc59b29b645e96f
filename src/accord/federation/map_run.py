"""A map on its way: its values are drawn once, for all trials of a seed that look through it.

RUN/teachers/<id>/map.safetensors then holds what every client's briefing will carry.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Literal

from accord.core.versions import versions
from accord.engines.base import Job
from accord.federation.tasks import Task
from accord.federation.tasks.draw import VALUES, DrawMap
from accord.federation.teacher import NAME
from accord.federation.teacher_run import TeacherRun
from accord.federation.work import Run, Step
from accord.messages import MapValues
from accord.nets.maps import MapConfig

DRAWING = 20_000  # what drawing takes besides looking at public images, in images through a net


@dataclass
class MapRun(Run):
    """The values of a map φ; `teacher`: whose encoder is a part of it."""

    kind: ClassVar[str] = "map"
    map: MapConfig = field(kw_only=True)
    teacher: TeacherRun | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.values.exists():
            self.status = "finished"

    @property
    def clients(self) -> tuple[str, ...]:
        return (NAME,)

    @property
    def values(self) -> Path:
        return self.folder.path / VALUES

    def work(self) -> float:
        return float(DRAWING + (len(self.allocation.split.public) if self.map.landmarks else 0))

    def drawn(self) -> MapValues:
        """The values, once it is finished."""
        return MapValues.load(self.values)

    def way(self) -> Iterator[Step]:
        while self.teacher is not None and not self.teacher.over:
            yield None
        if self.teacher is not None and self.teacher.status == "failed":
            self.failures += self.teacher.failures
            return
        yield [self._drawing()]

    def _drawing(self) -> Job[Task]:
        task = DrawMap(
            place=self.place,
            allocation=self.key,
            map=self.map.model_dump(mode="json"),
            seed=self.trial.seed,
            teacher=self.teacher.place if self.teacher else None,
            names=self.teacher.clients if self.teacher else (),
        )
        return Job(task, self.work())

    def end(self, status: Literal["finished", "failed"]) -> None:
        self.folder.write_info(
            {
                "id": self.folder.id,
                "status": status,
                "failures": self.failures,
                "public_images": len(self.allocation.split.public),
                "seed": self.trial.seed,
                "map": self.map.model_dump(mode="json"),
                "teacher": self.teacher.folder.id if self.teacher else None,
                "versions": versions(),
            }
        )
