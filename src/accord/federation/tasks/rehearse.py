"""The task of `--dry-run`: a worker does a little of each kind of work of a trial."""

from __future__ import annotations

from typing import Any

import torch

from accord.client.base import Precision
from accord.core.parts import make_part
from accord.federation.measuring.blocks import BLOCK
from accord.federation.rehearsal.client_work import ClientWork
from accord.federation.rehearsal.server_work import ServerWork
from accord.federation.tasks.answer import AnswerBriefing
from accord.federation.tasks.base import Answer, Tell, briefing_at, register, release_memory
from accord.methods import methods
from accord.nets.inference import EVAL_BATCH
from accord.record.record import Record


@register("rehearse")
class Rehearse(AnswerBriefing):
    """Does a few steps of one client, and the server's work with its upload. Answers a `Speed`.

    The work is that of the other tasks, on few images, in batches of the full size. Therefore the
    worker needs as much memory as in the study.
    """

    senders: tuple[str, ...] = ()  # the clients whose upload this one stands for
    method: dict[str, Any] | None = None  # begins the next round; None: there is none
    fusions: dict[str, dict[str, Any]]  # name → specification
    server_device: str = "cpu"

    @property
    def subject(self) -> str:
        return "the rehearsal"

    def perform(self, record: Record, tell: Tell) -> Answer:  # noqa: ARG002 - takes little time
        trial = self.folder(record)
        folder = trial.round(1)
        briefing = briefing_at(folder.briefing)
        precision = Precision(torch.device(self.device), self.autocast, self.compile)
        work = ClientWork(self._images(record), briefing, self.name, precision)
        speed, upload = work.measure(folder)
        if not self.senders:
            return {"speed": speed.model_dump(mode="json")}
        paths = []
        for name in self.senders:
            paths.append(folder.upload(name, 0, last=True))
            sent = upload.header.model_copy(update={"client": name})
            type(upload)(sent, upload.tensors).save(paths[-1])
        del upload
        release_memory()
        allocation = self.images(record)
        test, validation = allocation.part("test"), allocation.part("validation")
        server = ServerWork(
            folder=trial,
            briefing=briefing,
            uploads=paths,
            public=allocation.part("public").slice(0, EVAL_BATCH),
            images=(test if len(test) else validation).slice(0, BLOCK),
            device=self.server_device,
        )
        method = make_part(methods, self.method, "method") if self.method else None
        found = speed.model_copy(update=server.measure(method, self.fusions))
        return {"speed": found.model_dump(mode="json")}
