"""The task in which the server labels its public images with an earlier result."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.data.allocation import Allocation
from accord.federation.tasks.base import Answer, Task, Tell, register
from accord.federation.tasks.outcome import Outcome
from accord.messages import NET, Features, FeaturesHeader, unprefixed
from accord.model.predictor import Predictor
from accord.nets.inference import predicted_labels
from accord.nets.net import loaded_net
from accord.record.record import Record

LABELS = "labels.safetensors"


@register("label")
class LabelPublic(Task):
    """Predicts the class of every public image, whose own labels are not used."""

    before: Outcome | None = None  # the finished trial that makes the net
    model: str | None = None  # folder of a saved model in its place

    def perform(self, record: Record, tell: Tell) -> Answer:  # noqa: ARG002 - takes little time
        allocation = self.images(record)
        public = allocation.part("public")
        if self.model is not None:
            digest, labels = None, Predictor.load(self.model).scores(public).argmax(dim=1)
        else:
            digest, labels = self._by_trial(record, allocation)
        told = FeaturesHeader(briefing=digest)
        Features(told, {"labels": labels}).save(self.folder(record).path / LABELS)
        return {}

    def _by_trial(self, record: Record, allocation: Allocation) -> tuple[str, Tensor]:
        """The digest of the trial's briefing, and the labels."""
        if self.before is None:
            raise ValueError("expected a finished trial or a model; found neither")
        device = torch.device(self.device)
        found, briefing = self.before.net(record, allocation, self.device)
        header = briefing.header
        weights = unprefixed(NET, found.tensors)
        net = loaded_net(header.net, header.channels, len(header.classes), weights).to(device)
        return briefing.digest, predicted_labels(net, allocation.part("public"), header, device)
