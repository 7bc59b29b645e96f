"""One trial on its way: brief → train every client → merge → measure → record."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from accord.changes import Changes
from accord.engines.jobs import Job
from accord.engines.maprun import MapRun
from accord.engines.measuring import Measuring
from accord.engines.run import Run, choose_device
from accord.engines.teacherrun import TeacherRun
from accord.server import brief
from accord.versions import versions


@dataclass
class TrialRun(Run):
    """A trial, and whom it waits for."""

    kind: ClassVar[str] = "trial"
    training_key: str = field(kw_only=True)  # trials with the same key train alike
    twin: TrialRun | None = field(default=None, kw_only=True)  # an earlier one that trains alike
    teacher: TeacherRun | None = field(default=None, kw_only=True)  # whose features are its bank
    map: MapRun | None = field(default=None, kw_only=True)  # the fixed features it looks through
    followers: int = field(default=0, kw_only=True)  # later trials that still need its uploads
    again: bool = field(default=False, kw_only=True)  # finished before, and fused once more

    @cached_property
    def measuring(self) -> Measuring:
        return Measuring(self.trial, self.folder, self.deal)

    @property
    def clients(self) -> tuple[str, ...]:
        return self.deal.partition.names

    @property
    def epochs(self) -> tuple[int, ...]:
        return self.measuring.epochs

    @property
    def device(self) -> str:
        """Where the server works."""
        return choose_device(self.trial.options.device, self.clients[0])

    def untrained(self) -> list[int]:
        """Clients (by index) that lack an upload; a finished trial keeps only the last ones."""
        finished = self.folder.info().get("status") == "finished"
        needed = self.epochs[-1:] if finished else self.epochs
        return [
            index
            for index, client in enumerate(self.clients)
            if not all(self.measuring.upload(client, epoch).exists() for epoch in needed)
        ]

    @property
    def unbriefed(self) -> bool:
        """Whether anyone still needs its briefing; who only measures does not."""
        return not self.folder.briefing.exists() or bool(self.untrained())

    def training_size(self, index: int) -> float:
        """A client's work, in images passed through the net."""
        images = int(self.deal.partition.label_counts[index].sum())
        return float(images * self.trial.setup.budget.epochs * self.trial.recipe.views)

    def work(self) -> float:
        training = 0.0
        if self.twin is None:
            training = sum(self.training_size(index) for index in self.untrained())
        return training + self.measuring.merge_work() + self.measuring.measure_work()

    # --- the way -------------------------------------------------------------------------------

    def advance(self) -> None:
        while not self.over and not self.ready and not self.pending:
            if self.failures and self.again:
                self.stage = "failed"  # what it found before stays
            elif self.failures:
                self._end("failed")
            elif self.stage == "new":
                if not self._start():
                    return
            elif self.stage == "train":
                last = [self.measuring.upload(client, self.epochs[-1]) for client in self.clients]
                self.write_events(dict(enumerate(last)))
                self.stage = "trained"
            elif self.stage == "trained":
                jobs = self.measuring.merge_jobs(self.device)
                self.ready.extend(self.with_deal(job) for job in jobs)
                self.stage = "merge"
            elif self.stage == "merge":
                self.remarks += self.measuring.remarks()
                jobs = self.measuring.measure_jobs(self.device)
                self.ready.extend(self.with_deal(job) for job in jobs)
                self.stage = "measure"
            else:
                self.measuring.write()
                self._end("finished")
                self.tidy()

    def take(self, job: Job, result: dict[str, Any]) -> None:
        super().take(job, result)
        self.measuring.take(job, result)

    def fuse_again(self, specs: list[dict[str, Any]], changes: Changes, keep: str | None) -> None:
        """Goes back to where its clients have just trained, to fuse them otherwise.

        The nets of the fusion `keep` stay until `forget_merged`.
        """
        self.trial = replace(self.trial, fusions=tuple(specs))
        self.measuring = Measuring(self.trial, self.folder, self.deal, changes, keep)
        self.stage, self.again = "trained", True

    def close(self) -> None:
        if self.twin is not None:
            self.twin.followers -= 1
            self.twin.tidy()

    def _start(self) -> bool:
        """Writes the briefing and plans training; False while teacher or twin are still at it."""
        helpers = [helper for helper in (self.teacher, self.map) if helper is not None]
        if self.unbriefed and not all(helper.over for helper in helpers):
            return False
        if self.twin is not None and self.twin.stage in ("new", "train"):
            return False
        self.failures += self._failed_before()
        if not self.failures and self.unbriefed:
            public = self.teacher.rows() if self.teacher else None
            values = self.map.drawn().tensors if self.map else None
            self.write_briefing(brief(self.trial, self.deal, public, values))
        if self.twin is not None and not self.failures:
            self._link_uploads(self.twin)
        order = sorted(self.untrained(), key=self.training_size, reverse=True)
        self._write_info("running")
        if self.failures:
            return True
        self.folder.events.unlink(missing_ok=True)
        self.ready.extend(self._training_job(index) for index in order)
        self.stage = "train"
        return True

    def _failed_before(self) -> list[str]:
        if self.teacher is not None and self.unbriefed and self.teacher.stage == "failed":
            reasons = [reason.removeprefix("the teacher: ") for reason in self.teacher.failures]
            return [f"its teacher {self.teacher.folder.id} failed: {' '.join(reasons)}"]
        if self.map is not None and self.unbriefed and self.map.stage == "failed":
            return [
                f"its map {self.map.folder.id} could not be drawn: {' '.join(self.map.failures)}"
            ]
        if self.twin is not None and self.twin.stage == "failed" and self.untrained():
            return [f"trains like {self.twin.folder.id}, which failed"]
        return []

    def _link_uploads(self, twin: TrialRun) -> None:
        """Takes over the uploads of a trial that trained alike: same briefing, same bytes."""
        for client in self.clients:
            sources = [twin.measuring.upload(client, epoch) for epoch in self.epochs]
            targets = [self.measuring.upload(client, epoch) for epoch in self.epochs]
            if all(source.exists() for source in sources):
                for source, target in zip(sources, targets, strict=True):
                    _link(source, target)

    def _training_job(self, index: int) -> Job:
        client = self.clients[index]
        uploads = {epoch: self.measuring.upload(client, epoch) for epoch in self.epochs}
        return self.training_job(client, index, uploads, self.training_size(index))

    def tidy(self) -> None:
        """Removes what only an unfinished trial, or one that trains alike, needs."""
        if self.stage != "finished" or self.followers or self.trial.options.keep_checkpoints:
            return
        for client in self.clients:
            for epoch in self.epochs[:-1]:
                self.measuring.upload(client, epoch).unlink(missing_ok=True)
        shutil.rmtree(self.folder.path / "state", ignore_errors=True)

    # --- the record ----------------------------------------------------------------------------

    def _end(self, stage: str) -> None:
        self._write_info(stage)
        self.stage = stage

    def _write_info(self, status: str) -> None:
        trial, partition = self.trial, self.deal.partition
        setup = trial.setup.model_dump(mode="json")
        old = self.folder.info()
        self.folder.write_info(
            {
                "id": self.folder.id,
                "status": status,
                "failures": self.failures,
                "study": trial.study,
                "dataset": setup["data"]["name"],
                "images": self.deal.dataset.folder.name,
                "partition": "pooled" if trial.recipe.pooled else setup["partition"]["scheme"],
                "alpha": setup["partition"].get("alpha"),
                "clients": len(self.clients),
                "recipe": trial.recipe.name,
                "seed": trial.seed,
                "partition_hash": partition.hash,
                "label_counts": partition.label_counts.tolist(),
                "sources": partition.sources,
                "classes": self.deal.classes,
                "download_bytes": self._download_bytes(),
                "peak_memory_bytes": max(self.peak_memory, old.get("peak_memory_bytes") or 0),
                "training": self.training_key,
                "teacher": self.teacher.folder.id if self.teacher else None,
                "config": {
                    **setup,
                    "recipe": trial.recipe.model_dump(mode="json"),
                    "fusions": _union(old, trial.fusions),
                    "options": trial.options.model_dump(mode="json"),
                },
                "versions": versions(),
            }
        )

    def _download_bytes(self) -> int | None:
        path = self.folder.briefing
        return path.stat().st_size * len(self.clients) if path.exists() else None


def _union(info: dict[str, Any], specs: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The fusions a trial has been asked for, now and before."""
    before = info.get("config", {}).get("fusions", [])
    return list({spec["as"]: spec for spec in (*before, *specs)}.values())


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        os.link(source, target)
    except OSError:
        # Some file systems have no hard links: a copy, whole or not at all.
        temporary = target.with_suffix(".partial")
        shutil.copyfile(source, temporary)
        temporary.replace(target)
