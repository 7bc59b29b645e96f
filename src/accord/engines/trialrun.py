"""One trial on its way: brief → train every client → merge → measure → record.

A `TrialRun` hands out the jobs that can be done now and takes their results. It keeps nothing
that matters in memory: what is finished is read off the files, so a run that was killed goes on
where it stopped.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import torch

from accord.data.deal import Deal
from accord.engines.jobs import Job
from accord.engines.measuring import Measuring
from accord.errors import AccordError
from accord.messages import Upload
from accord.record import Record, TrialFolder
from accord.server import brief
from accord.study import Options, Trial
from accord.versions import versions


@dataclass
class TrialRun:
    """A trial, its folder, and how far it is."""

    trial: Trial
    folder: TrialFolder
    training_key: str  # trials with the same key train alike
    deal: Deal
    deal_path: Path
    twin: TrialRun | None = None  # an earlier trial of this run that trains alike
    followers: int = 0  # later trials that still need this one's uploads
    stage: Literal["new", "train", "merge", "measure", "finished", "failed"] = "new"
    ready: deque[Job] = field(default_factory=deque)
    pending: int = 0
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    peak_memory: int = 0

    @cached_property
    def measuring(self) -> Measuring:
        return Measuring(self.trial, self.folder, self.deal)

    @property
    def clients(self) -> tuple[str, ...]:
        return self.measuring.clients

    @property
    def epochs(self) -> tuple[int, ...]:
        return self.measuring.epochs

    @property
    def over(self) -> bool:
        return self.stage in ("finished", "failed")

    def untrained(self) -> list[int]:
        """Clients (by index) that lack an upload; a finished trial keeps only the last ones."""
        finished = self.folder.info().get("status") == "finished"
        needed = self.epochs[-1:] if finished else self.epochs
        return [
            index
            for index, client in enumerate(self.clients)
            if not all(self.measuring.upload(client, epoch).exists() for epoch in needed)
        ]

    def training_size(self, index: int) -> float:
        """A client's work, in images passed through the net."""
        images = int(self.deal.partition.label_counts[index].sum())
        return float(images * self.trial.setup.budget.epochs * self.trial.recipe.views)

    def save_deal(self, record: Record) -> None:
        """Writes who holds which images, for workers and for those who come after."""
        record.keep_data(self.deal.data, self.deal.dataset.folder.name)
        self.deal.save(self.deal_path)

    # --- the way -------------------------------------------------------------------------------

    def advance(self) -> None:
        """Moves to the next stage as long as nothing of this one is left."""
        while not self.over and not self.ready and not self.pending:
            if self.failures:
                self._end("failed")
            elif self.stage == "new":
                if not self._start():
                    return
            elif self.stage == "train":
                self._write_events()
                self.ready.extend(self.measuring.merge_jobs())
                self.stage = "merge"
            elif self.stage == "merge":
                self.remarks += self.measuring.remarks()
                device = choose_device(self.trial.options.device, self.clients[0])
                jobs = self.measuring.measure_jobs(device)
                self.ready.extend(self._with_deal(job) for job in jobs)
                self.stage = "measure"
            else:
                self.measuring.write()
                self._end("finished")
                self.tidy()

    def take(self, job: Job, result: dict[str, Any]) -> None:
        self.peak_memory = max(self.peak_memory, result.pop("peak_memory", 0))
        self.measuring.take(job, result)

    def _start(self) -> bool:
        """Writes the briefing and plans training; False while the twin is still at it."""
        if self.twin is not None:
            if self.twin.stage in ("new", "train"):
                return False
            if self.twin.stage == "failed" and self.untrained():
                self.failures.append(f"trains like {self.twin.folder.id}, which failed")
        self._write_briefing()
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

    def _write_briefing(self) -> None:
        briefing = brief(self.trial, self.deal)
        path = self.folder.briefing
        if not path.exists():
            briefing.save(path)
        elif path.read_bytes() != briefing.to_bytes():
            raise AccordError(
                f"{path} is not what this version of Accord sends for the same study, or it is "
                "damaged. Delete the trial's folder, or use another --out."
            )

    def _link_uploads(self, twin: TrialRun) -> None:
        """Takes over the uploads of a trial that trained alike: same briefing, same bytes."""
        for client in self.clients:
            sources = [twin.measuring.upload(client, epoch) for epoch in self.epochs]
            targets = [self.measuring.upload(client, epoch) for epoch in self.epochs]
            if all(source.exists() for source in sources):
                for source, target in zip(sources, targets, strict=True):
                    _link(source, target)

    def _training_job(self, index: int) -> Job:
        client, options = self.clients[index], self.trial.options
        device = choose_device(options.device, client)
        args = {
            "briefing": str(self.folder.briefing),
            "client": client,
            "index": index,
            "uploads": {str(e): str(self.measuring.upload(client, e)) for e in self.epochs},
            "state": str(self.folder.state(client)),
            "device": device,
            "autocast": use_autocast(options, client),
            # Compiling costs more than a study's steps save.
            "compile": False if options.compile == "auto" else options.compile,
        }
        return self._with_deal(Job("train", args, self.training_size(index)))

    def _with_deal(self, job: Job) -> Job:
        return Job(job.kind, {**job.args, "deal": str(self.deal_path)}, job.size)

    def _write_events(self) -> None:
        """events.jsonl, whole and in order, from the telemetry in the uploads."""
        events = []
        for index, client in enumerate(self.clients):
            header = Upload.load(self.measuring.upload(client, self.epochs[-1])).header
            events += [{"client": index, **event} for event in header.telemetry]
        self.folder.write_events(events)

    def tidy(self) -> None:
        """Removes what only an unfinished trial, or one that trains alike, needs."""
        if self.stage != "finished" or self.followers or self.trial.options.keep_checkpoints:
            return
        for client in self.clients:
            for epoch in self.epochs[:-1]:
                self.measuring.upload(client, epoch).unlink(missing_ok=True)
        shutil.rmtree(self.folder.path / "state", ignore_errors=True)

    # --- the record ----------------------------------------------------------------------------

    def _end(self, stage: Literal["finished", "failed"]) -> None:
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
                "partition": "pooled" if trial.recipe.pooled else setup["partition"]["scheme"],
                "alpha": setup["partition"].get("alpha"),
                "clients": len(self.clients),
                "recipe": trial.recipe.name,
                "seed": trial.seed,
                "partition_hash": partition.hash,
                "label_counts": partition.label_counts.tolist(),
                "sources": partition.sources,
                "classes": self.deal.classes,
                "download_bytes": self.folder.briefing.stat().st_size * len(self.clients),
                "peak_memory_bytes": max(self.peak_memory, old.get("peak_memory_bytes") or 0),
                "training": self.training_key,
                "config": {
                    **setup,
                    "recipe": trial.recipe.model_dump(mode="json"),
                    "fusions": list(trial.fusions),
                    "options": trial.options.model_dump(mode="json"),
                },
                "versions": versions(),
            }
        )


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
