"""The task in which the server encodes its public images, for a bank of features."""

from __future__ import annotations

from pathlib import Path

import torch

from accord.core.errors import ClientError
from accord.federation.bank_source import uploads_of
from accord.federation.tasks.base import Answer, Task, Tell, register
from accord.federation.teacher import encode
from accord.messages import Features, FeaturesHeader
from accord.record.folders import TrialFolder
from accord.record.record import Record

FEATURES = "features.safetensors"


@register("encode")
class EncodePublic(Task):
    """Encodes every public image as a unit feature, with the nets of a teacher or of a trial."""

    source: str | None = None  # the folder of an earlier trial; None: the teacher's own nets

    def perform(self, record: Record, tell: Tell) -> Answer:  # noqa: ARG002 - takes little time
        folder = self.folder(record)
        if self.source is None:
            files = uploads_of(folder, own=True)
        else:
            files = uploads_of(TrialFolder(Path(self.source)))
        rows = encode(files, self.images(record).part("public"), self.device)
        if not bool(torch.isfinite(rows.features).all()):
            raise ClientError(
                "its features of the public images are NaN or infinite. Lower budget.lr, or choose "
                "another bank.source."
            )
        header = FeaturesHeader(briefing=files.briefing.digest)
        tensors = {"features": rows.features, "labels": rows.labels}
        Features(header, tensors).save(folder.path / FEATURES)
        return {}
