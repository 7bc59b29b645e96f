"""A map on its way: its values are drawn once, for all trials of a seed that look through it.

RUN/teachers/<id>/map.safetensors then holds what every client's briefing will carry.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from accord.engines.jobs import Job
from accord.engines.run import Run
from accord.engines.teacherrun import TeacherRun
from accord.maps import MapConfig
from accord.messages import MapValues
from accord.teacher import NAME
from accord.versions import versions

DRAWING = 20_000  # what drawing takes besides looking at public images, in images through a net


@dataclass
class MapRun(Run):
    """The values of a map φ; `teacher`: whose encoder is a part of it."""

    kind: ClassVar[str] = "map"
    map: MapConfig = field(kw_only=True)
    teacher: TeacherRun | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if self.values.exists():
            self.stage = "finished"

    @property
    def clients(self) -> tuple[str, ...]:
        return (NAME,)

    @property
    def values(self) -> Path:
        return self.folder.path / "map.safetensors"

    def work(self) -> float:
        return float(DRAWING + (len(self.deal.split.public) if self.map.landmarks else 0))

    def drawn(self) -> MapValues:
        """The values, once it is finished."""
        return MapValues.load(self.values)

    def advance(self) -> None:
        while not self.over and not self.ready and not self.pending:
            if self.teacher is not None and self.teacher.stage == "failed":
                self.failures += self.teacher.failures
            if self.failures:
                self._end("failed")
            elif self.values.exists():
                self._end("finished")
            elif self.teacher is not None and not self.teacher.over:
                return
            elif self.stage == "draw":
                raise RuntimeError(f"{self.values} was not made")
            else:
                self.ready.append(self._job())
                self.stage = "draw"

    def _job(self) -> Job:
        args = {
            "map": self.map.model_dump(mode="json"),
            "seed": self.trial.seed,
            "teachers": [str(path) for path in self.teacher.uploads] if self.teacher else [],
            "to": str(self.values),
        }
        return self.with_deal(Job("draw", args, self.work()))

    def _end(self, stage: str) -> None:
        self.stage = stage
        self.folder.write_info(
            {
                "id": self.folder.id,
                "status": stage,
                "failures": self.failures,
                "public_images": len(self.deal.split.public),
                "seed": self.trial.seed,
                "map": self.map.model_dump(mode="json"),
                "teacher": self.teacher.folder.id if self.teacher else None,
                "versions": versions(),
            }
        )
