"""The task in which the server labels its public images with the result of a finished trial."""

from __future__ import annotations

import torch

from accord.federation.tasks.base import Answer, Task, Tell, register
from accord.federation.tasks.outcome import Outcome
from accord.messages import NET, Features, FeaturesHeader, unprefixed
from accord.nets.inference import predicted_labels
from accord.nets.net import loaded_net
from accord.record.record import Record

LABELS = "labels.safetensors"


@register("label")
class LabelPublic(Task):
    """Predicts the class of every public image, whose own labels are not used."""

    before: Outcome

    def perform(self, record: Record, tell: Tell) -> Answer:  # noqa: ARG002 - takes little time
        public, device = self.images(record).part("public"), torch.device(self.device)
        found, briefing = self.before.net(record, public, self.device)
        header = briefing.header
        weights = unprefixed(NET, found.tensors)
        net = loaded_net(header.net, header.channels, len(header.classes), weights).to(device)
        labels = predicted_labels(net, public, header, device)
        told = FeaturesHeader(briefing=briefing.digest)
        Features(told, {"labels": labels}).save(self.folder(record).path / LABELS)
        return {}
