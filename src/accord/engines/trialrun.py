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
from pathlib import Path
from typing import Any

import torch

from accord.data.deal import Deal
from accord.engines.jobs import Job
from accord.errors import AccordError
from accord.fusion.base import Bound, Merge, fusions
from accord.messages import Upload
from accord.metrics import Metrics, Tally
from accord.parts import make_part
from accord.record import TrialFolder
from accord.server import brief
from accord.study import Trial
from accord.versions import versions

BLOCK = 2_000  # images per measure job; fixed, so that sums do not depend on the workers


@dataclass
class TrialRun:
    """A trial, its folder, and how far it is."""

    trial: Trial
    folder: TrialFolder
    training_key: str  # trials with the same key train alike
    deal: Deal
    deal_path: Path
    twin: TrialRun | None = None  # an earlier trial of this run that trains alike
    shared: bool = False  # a later trial still needs this one's uploads
    stage: str = "new"  # new → train → merge → measure → finished or failed
    ready: deque[Job] = field(default_factory=deque)
    pending: int = 0
    failures: list[str] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    tallies: dict[tuple[int, str, int], dict[str, Any]] = field(default_factory=dict)
    peak_memory: int = 0

    # --- what is to be done --------------------------------------------------------------------

    @property
    def clients(self) -> tuple[str, ...]:
        return self.deal.partition.names

    @property
    def epochs(self) -> tuple[int, ...]:
        return self.trial.setup.budget.checkpoints

    @property
    def over(self) -> bool:
        return self.stage in ("finished", "failed")

    def upload(self, client: str, epoch: int) -> Path:
        return self.folder.upload(client, epoch, last=epoch == self.epochs[-1])

    def unmeasured(self) -> dict[int, list[str]]:
        """Checkpoint → fusions that have no measure yet."""
        wanted = [spec["as"] for spec in self.trial.fusions]
        measured = {
            checkpoint["epoch"]: checkpoint["fusions"]
            for checkpoint in self.folder.measures()["checkpoints"]
        }
        missing = {
            epoch: [name for name in wanted if name not in measured.get(epoch, {})]
            for epoch in self.epochs
        }
        return {epoch: names for epoch, names in missing.items() if names}

    def untrained(self) -> list[int]:
        """Clients (by index) that still have an upload to make."""
        return [
            index
            for index, client in enumerate(self.clients)
            if not self.upload(client, self.epochs[-1]).exists()
        ]

    def training_size(self, index: int) -> float:
        """A client's work, in images passed through the net."""
        images = int(self.deal.partition.label_counts[index].sum())
        return float(images * self.trial.setup.budget.epochs * self.trial.recipe.views)

    # --- the way -------------------------------------------------------------------------------

    def advance(self) -> None:
        """Moves to the next stage as long as nothing of this one is left."""
        while not self.over and not self.ready and not self.pending:
            if self.failures:
                self._fail()
            elif self.stage == "new":
                if not self._start():
                    return
            elif self.stage == "train":
                self._trained()
            elif self.stage == "merge":
                self._plan_measures()
            elif self.stage == "measure":
                self._finish()

    def _start(self) -> bool:
        """Writes the briefing and plans training; False while the twin is still at it."""
        if self.twin is not None:
            if self.twin.stage in ("new", "train"):
                return False
            if self.twin.stage == "failed" and self.untrained():
                self.failures.append(f"trains like {self.twin.folder.id}, which failed")
                return True
        briefing = brief(self.trial, self.deal)
        if self.folder.briefing.exists():
            self._check_briefing(briefing.to_bytes())
        else:
            briefing.save(self.folder.briefing)
        self._write_info("running")
        if self.twin is not None:
            self._link_uploads(self.twin)
        self.folder.events.unlink(missing_ok=True)
        order = sorted(self.untrained(), key=self.training_size, reverse=True)
        self.ready.extend(self._training_job(index) for index in order)
        self.stage = "train"
        return True

    def _check_briefing(self, content: bytes) -> None:
        if self.folder.briefing.read_bytes() != content:
            raise AccordError(
                f"{self.folder.briefing} is not what this version of Accord sends for the same "
                "study (or it is damaged). Delete the trial's folder, or use another --out."
            )

    def _link_uploads(self, twin: TrialRun) -> None:
        """Takes over the uploads of a trial that trained alike: same briefing, same bytes."""
        for client in self.clients:
            for epoch in self.epochs:
                source, target = twin.upload(client, epoch), self.upload(client, epoch)
                if source.exists() and not target.exists():
                    target.parent.mkdir(parents=True, exist_ok=True)
                    try:
                        os.link(source, target)
                    except OSError:
                        # Some file systems have no hard links.
                        temporary = target.with_suffix(".partial")
                        shutil.copyfile(source, temporary)
                        temporary.replace(target)

    def _training_job(self, index: int) -> Job:
        client, options = self.clients[index], self.trial.options
        device = choose_device(options.device, client)
        autocast = options.autocast if options.autocast != "auto" else device.startswith("cuda")
        compiled = options.compile if options.compile != "auto" else False
        return Job(
            "train",
            {
                "briefing": str(self.folder.briefing),
                "deal": str(self.deal_path),
                "client": client,
                "index": index,
                "uploads": {str(e): str(self.upload(client, e)) for e in self.epochs},
                "state": str(self.folder.state(client)),
                "device": device,
                "autocast": autocast,
                "compile": compiled,
            },
            self.training_size(index),
        )

    def _trained(self) -> None:
        """All uploads are there: writes events.jsonl whole and plans the merges."""
        events = []
        for index, client in enumerate(self.clients):
            upload = Upload.load(self.upload(client, self.epochs[-1]))
            events += [{"client": index, **event} for event in upload.header.telemetry]
        self.folder.write_events(events)
        self.stage = "merge"
        for epoch, names in self._measurable().items():
            for spec in self.trial.fusions:
                if spec["as"] in names and isinstance(self._rule(spec), Merge):
                    to = self.folder.merged(spec["as"], epoch)
                    args = {**self._files(epoch), "fusion": _plain(spec), "to": str(to)}
                    self.ready.append(Job("merge", args, 0))

    def _measurable(self) -> dict[int, list[str]]:
        """What is unmeasured and still has its uploads; earlier checkpoints may be gone."""
        found = {}
        for epoch, names in self.unmeasured().items():
            if all(self.upload(client, epoch).exists() for client in self.clients):
                found[epoch] = names
            else:
                self.remarks.append(
                    f"{self.folder.id}: {', '.join(names)} not measured at epoch {epoch}, whose "
                    "uploads were not kept (set keep_checkpoints: true before training)."
                )
        return found

    def _plan_measures(self) -> None:
        self.stage = "measure"
        for epoch, names in self._measurable().items():
            for part in ("test", "validation"):
                images = len(self.deal.part(part))
                for start in range(0, images, BLOCK):
                    stop = min(start + BLOCK, images)
                    self.ready.append(self._measure_job(epoch, names, part, start, stop))

    def _measure_job(self, epoch: int, names: list[str], part: str, start: int, stop: int) -> Job:
        chosen = [spec for spec in self.trial.fusions if spec["as"] in names]
        merging = [spec["as"] for spec in chosen if isinstance(self._rule(spec), Merge)]
        skipped = [spec["as"] for spec in chosen if isinstance(self._rule(spec), Bound)]
        args = {
            **self._files(epoch),
            "deal": str(self.deal_path),
            "epoch": epoch,
            "part": part,
            "start": start,
            "stop": stop,
            "votes": {
                spec["as"]: _plain(spec)
                for spec in chosen
                if spec["as"] not in merging and spec["as"] not in skipped
            },
            "merged": {name: str(self.folder.merged(name, epoch)) for name in merging},
            "device": choose_device(self.trial.options.device, self.clients[0]),
        }
        # A forward pass costs about a third of a training step.
        size = (stop - start) * (len(self.clients) + len(merging)) / 3
        return Job("measure", args, size)

    def _files(self, epoch: int) -> dict[str, Any]:
        return {
            "briefing": str(self.folder.briefing),
            "files": [str(self.upload(client, epoch)) for client in self.clients],
        }

    def _rule(self, spec: dict[str, Any]) -> Any:
        return make_part(fusions, _plain(spec), "fusion")

    # --- what came back ------------------------------------------------------------------------

    def take(self, job: Job, result: dict[str, Any]) -> None:
        self.peak_memory = max(self.peak_memory, result.pop("peak_memory", 0))
        if job.kind == "measure":
            key = (job.args["epoch"], job.args["part"], job.args["start"])
            self.tallies[key] = result

    def _finish(self) -> None:
        """Adds up the blocks, writes measures and costs, and drops what is no longer needed."""
        checkpoints = {c["epoch"]: c for c in self.folder.measures()["checkpoints"]}
        for epoch in sorted({epoch for epoch, _, _ in self.tallies}):
            fresh = self._checkpoint(epoch)
            old = checkpoints.get(epoch, {"fusions": {}})
            checkpoints[epoch] = {**fresh, "fusions": {**old["fusions"], **fresh["fusions"]}}
        self.folder.write_measures([checkpoints[epoch] for epoch in sorted(checkpoints)])
        shutil.rmtree(self.folder.path / "merged", ignore_errors=True)
        self._write_info("finished")
        self.stage = "finished"
        self.tidy()

    def tidy(self) -> None:
        """Removes uploads of earlier checkpoints, unless they are wanted."""
        if self.stage == "finished" and not self.shared and not self.trial.options.keep_checkpoints:
            for client in self.clients:
                for epoch in self.epochs[:-1]:
                    self.upload(client, epoch).unlink(missing_ok=True)

    def _checkpoint(self, epoch: int) -> dict[str, Any]:
        test, test_clients = self._sum(epoch, "test")
        validation, _ = self._sum(epoch, "validation")
        uploads = [Upload.load(self.upload(client, epoch)) for client in self.clients]
        measured = [tally.metrics() for tally in test_clients]
        fusions_here = {name: tally.metrics() for name, tally in test.items()}
        for spec in self.trial.fusions:
            rule = self._rule(spec)
            if isinstance(rule, Bound):
                fusions_here[spec["as"]] = rule.summarise(measured)
        return {
            "epoch": epoch,
            "seconds": sum(e["seconds"] for u in uploads for e in u.header.telemetry),
            "upload_bytes": sum(self.upload(c, epoch).stat().st_size for c in self.clients),
            "fusions": {
                name: {
                    **metrics.to_json(),
                    "validation_accuracy": _accuracy(validation.get(name)),
                }
                for name, metrics in fusions_here.items()
            },
            "clients": [
                {
                    "client": index,
                    "train_accuracy": uploads[index].header.train_accuracy,
                    "test_accuracy": metrics.accuracy,
                }
                for index, metrics in enumerate(measured)
            ],
        }

    def _sum(self, epoch: int, part: str) -> tuple[dict[str, Tally], list[Tally]]:
        """The blocks of a part added up, in order."""
        blocks = [self.tallies[key] for key in sorted(self.tallies) if key[:2] == (epoch, part)]
        if not blocks:
            return {}, []
        fused = {
            name: Tally.sum(Tally.from_json(block["fusions"][name]) for block in blocks)
            for name in blocks[0]["fusions"]
        }
        clients = [
            Tally.sum(Tally.from_json(block["clients"][index]) for block in blocks)
            for index in range(len(self.clients))
        ]
        return fused, clients

    def _fail(self) -> None:
        self._write_info("failed")
        self.stage = "failed"

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
                "axes": trial.axes,
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
        named = {str(name): device for name, device in asked.items()}
        asked = named.get(client, "auto")
    if asked == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    return asked


def _plain(spec: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in spec.items() if key != "as"}


def _accuracy(tally: Tally | None) -> float | None:
    return tally.metrics().accuracy if tally else None


__all__ = ["Metrics", "TrialRun"]
