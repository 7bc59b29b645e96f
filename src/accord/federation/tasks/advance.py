"""The task in which the server begins the next round."""

from __future__ import annotations

from typing import Any

import torch

from accord.core.clock import Stopwatch
from accord.core.errors import ClientError
from accord.core.files import read_json, write_json
from accord.core.parts import make_part
from accord.federation.tasks.base import Answer, Task, Tell, briefing_at, register
from accord.fusion.base import Scene
from accord.fusion.uploads import UploadFiles
from accord.messages import ServerState
from accord.methods import methods
from accord.record.record import Record


@register("advance")
class Advance(Task):
    """Makes the state of the next round from the uploads of this one."""

    round: int
    method: dict[str, Any]
    epoch: int  # the last epoch of the round
    answered: tuple[str, ...]  # the clients that sent an upload
    clients: int  # number of clients of the whole federation

    def out_of_memory(self, record: Record, said: str) -> ClientError:  # noqa: ARG002
        return ClientError(
            f"out of memory ({said}). Choose a smaller net.backbone, or for MergeNet a smaller "
            "mergenet.batch or the adapter bottleneck."
        )

    def perform(self, record: Record, tell: Tell) -> Answer:
        trial = self.folder(record)
        folder, following = trial.round(self.round), trial.round(self.round + 1)
        method = make_part(methods, self.method, "method")
        briefing = briefing_at(folder.briefing)
        state = ServerState.load(folder.server_state)
        paths = [folder.upload(name, self.epoch, last=True) for name in self.answered]
        scene = Scene(
            uploads=UploadFiles(paths, briefing),
            briefing=briefing,
            public=self.images(record).part("public"),
            device=torch.device(self.device),
            tell=lambda share: tell({"share": share}),
            clients=self.clients,
        )
        spent = Stopwatch(scene.device.type)
        found = method.advance(state, scene)
        seconds = spent.seconds
        # The report is written first: if the state exists, its time is known.
        write_json(folder.report, {**read_json(folder.report), "server_seconds": seconds})
        found.save(following.server_state)
        return {"seconds": seconds, "told": found.header.own.get("told", {})}
