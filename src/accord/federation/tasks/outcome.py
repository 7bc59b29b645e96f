"""The result of a finished trial, from which another trial begins."""

from __future__ import annotations

from typing import Any

import torch

from accord.core.config import Config
from accord.core.parts import make_part
from accord.data.allocation import Allocation
from accord.federation.pooled_sums import total_of
from accord.federation.tasks.base import briefing_at
from accord.fusion.base import Merge, Scene, fusions
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, ServerState, Upload
from accord.record.record import Record


class Outcome(Config):
    """The uploads of a trial's last round, and the fusion that makes its net of them."""

    place: str  # the trial's path in the record
    round: int
    epoch: int
    clients: tuple[str, ...]
    fusion: dict[str, Any]
    made_up: bool = False  # in a rehearsal the uploads hold initial weights, and nobody checks them

    def net(self, record: Record, allocation: Allocation, device: str) -> tuple[Upload, Briefing]:
        """The trial's net in the form of an upload, and the briefing that describes it."""
        rule = make_part(fusions, self.fusion, "fusion")
        if not isinstance(rule, Merge):
            raise TypeError(f"{self.fusion} does not merge nets")
        trial = record.folder(self.place)
        folder = trial.round(self.round)
        briefing = briefing_at(folder.briefing)
        paths = [folder.upload(name, self.epoch, last=True) for name in self.clients]
        files = UploadFiles(paths, briefing, own=self.made_up)
        if self.made_up and (rule.of == "sums" or rule.after_advance):
            return files.load(0), briefing
        following = trial.round(self.round + 1).server_state
        scene = Scene(
            uploads=files,
            briefing=briefing,
            public=allocation.part("public"),
            validation=allocation.part("validation"),
            device=torch.device(device),
            total=total_of(files, trial.total) if rule.of == "sums" else None,
            after=ServerState.load(following) if rule.after_advance else None,
            clients=len(self.clients),
        )
        (net,) = rule.merge(scene)
        return net, rule.described(briefing)

    def client_nets(self, record: Record) -> list[Upload]:
        """The net of each client of the last round."""
        folder = record.folder(self.place).round(self.round)
        paths = [folder.upload(name, self.epoch, last=True) for name in self.clients]
        files = UploadFiles(paths, briefing_at(folder.briefing), own=self.made_up)
        return [files.load(index) for index in range(len(files))]
