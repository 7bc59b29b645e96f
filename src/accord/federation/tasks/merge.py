"""The task in which the server makes new nets from the uploads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from accord.closed_form.sums import Sums
from accord.core.clock import Stopwatch
from accord.core.parts import make_part
from accord.federation.pooled_sums import changed, total_of
from accord.federation.tasks.base import Answer, Task, Tell, briefing_at, register
from accord.fusion.base import Merge, Scene, fusions
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, ServerState
from accord.record.folders import TrialFolder
from accord.record.record import Record


@register("merge")
class MergeUploads(Task):
    """Makes new nets from the uploads and stores them in the format of uploads."""

    round: int
    epoch: int
    last: bool  # whether the epoch is the last of its round
    label: str  # the fusion's name in the results
    fusion: dict[str, Any]
    clients: tuple[str, ...]  # the clients whose uploads are merged
    nets: int  # number of nets that the fusion makes
    keep_total: bool = False  # whether the sum of all clients' sums is kept for later
    joined: tuple[str, ...] = ()  # files of uploads that are added to the sums
    removed: tuple[str, ...] = ()  # clients whose sums are subtracted

    def perform(self, record: Record, tell: Tell) -> Answer:
        rule = make_part(fusions, self.fusion, "fusion")
        if not isinstance(rule, Merge):
            raise TypeError(f"{self.fusion} does not merge nets")
        trial = self.folder(record)
        briefing = briefing_at(trial.round(self.round).briefing)
        files = UploadFiles([self._path(record, name) for name in self.clients], briefing)
        allocation, removed = self.images(record), {*self.removed}
        stayed = [
            path for path, c in zip(files.paths, self.clients, strict=True) if c not in removed
        ]
        scene = Scene(
            uploads=UploadFiles(stayed, briefing),
            briefing=briefing,
            public=allocation.part("public"),
            validation=allocation.part("validation"),
            device=torch.device(self.device),
            tell=lambda share: tell({"share": share}),
            total=self._total(record, files, briefing) if rule.of == "sums" else None,
            after=self._after(trial) if rule.after_advance else None,
            clients=len(self.clients),
        )
        events: list[dict[str, Any]] = []
        paths = (trial.merged(self.label, self.epoch, index) for index in range(self.nets))
        spent = Stopwatch(scene.device.type)
        for upload, path in zip(rule.merge(scene), paths, strict=True):
            events += [{**event, "seconds": spent.seconds} for event in upload.header.telemetry]
            upload.save(path)
            spent = Stopwatch(scene.device.type)
        return {"events": events}

    def _after(self, trial: TrialFolder) -> ServerState:
        return ServerState.load(trial.round(self.round + 1).server_state)

    def _path(self, record: Record, client: str) -> Path:
        return self.folder(record).round(self.round).upload(client, self.epoch, self.last)

    def _total(self, record: Record, files: UploadFiles, briefing: Briefing) -> Sums:
        """The total of the clients' sums, with the added and without the removed clients."""
        keep = self.folder(record).total if self.keep_total else None
        gone = (self._path(record, client) for client in self.removed)
        return changed(total_of(files, keep), briefing, map(Path, self.joined), gone)
