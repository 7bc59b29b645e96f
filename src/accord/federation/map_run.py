"""Draws the values of a map, once for all trials of a seed that use it.

The values are kept in RUN/teachers/<id>/map.safetensors, and every client's briefing carries them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal

from accord.core.processor import processor
from accord.core.versions import versions
from accord.engines.base import Job
from accord.federation.standing import all_over, outcome_of, reasons_of
from accord.federation.tasks import Task
from accord.federation.tasks.draw import VALUES, DrawMap
from accord.federation.teacher import NAME
from accord.federation.teacher_run import TeacherRun
from accord.federation.work import Run, Step
from accord.messages import MapValues
from accord.nets.maps import MapConfig

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun

DRAWING = 20_000  # cost of drawing without encoding public images, in images through a net


@dataclass
class MapRun(Run):
    """Draws the values of a map φ; the encoder of `teacher` is a part of the map."""

    kind: ClassVar[str] = "map"
    map: MapConfig = field(kw_only=True)
    teacher: TeacherRun | None = field(default=None, kw_only=True)
    before: TrialRun | None = field(default=None, kw_only=True)  # makes a net of the map

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
        """The values of the map, after the run is finished."""
        return MapValues.load(self.values)

    def way(self) -> Iterator[Step]:
        while not all_over(self.teacher, self.before):
            yield None
        self.failures += reasons_of(self.teacher, self.before)
        if self.failures:
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
            before=outcome_of(self.before) if self.before else None,
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
                "before": self.before.folder.id if self.before else None,
                "peak_memory_bytes": self.peak_memory,
                "core_seconds": self.spent,
                "versions": versions(),
                "processor": processor(),
            }
        )
