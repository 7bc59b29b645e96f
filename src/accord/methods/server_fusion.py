"""The fusion of a teacher's knowledge into the averaged net, at the server, in one round."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from accord.core.errors import ClientError
from accord.core.mergenet import MergeNetConfig
from accord.core.randomness import torch_generator
from accord.fusion.average import recalibrated
from accord.fusion.base import Scene
from accord.messages import TeacherHeader
from accord.methods.public_training import train_adapters
from accord.nets.adapters import Adapter, Enrichment
from accord.nets.net import loaded_net
from accord.nets.teacher import TeacherNet

Tensors = dict[str, Tensor]
RECALIBRATING = 512  # public images that are enough for the statistics of batch norms


@dataclass
class ServerFusion:
    """Ŵ = A_φ(W̄, Y) for the paired layers of the averaged net, and the training of φ.

    `told` collects what a person may want to know of the round.
    """

    settings: MergeNetConfig  # with the full names of all layers
    enrichment: Enrichment  # φ
    weights: Tensors  # the averaged net
    scene: Scene
    told: dict[str, Any] = field(default_factory=dict)

    def learn_from_clients(
        self, before: Tensors, sent: Tensors, source: Tensors, lr: float
    ) -> None:
        """φ ← φ − η·J_φᵀ(Ŵ_sent − W̄_returned)/lr, with J at the fusion that was sent.

        The clients' mean change of the layer, divided by their learning rate, stands in for the
        gradient of their loss. It is that gradient if each client does one plain step of SGD.
        """
        self.enrichment.eval()
        self.enrichment.zero_grad()
        enriched = self.enrichment(before, source)
        gradients = [(sent[own] - self.weights[own]) / lr for own in enriched]
        torch.autograd.backward(list(enriched.values()), gradients)
        with torch.no_grad():
            for parameter in self.enrichment.parameters():
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-self.settings.lr)
        self.told["learnt"] = "clients"

    def learn_from_public(self, source: Tensors, teacher: TeacherHeader | None) -> None:
        """Trains φ on public images; a new φ in every fusion if the adapter asks for it.

        `source` holds all weights of the teacher that `teacher` describes.
        """
        header, device = self.scene.briefing.header, self.scene.device
        for adapter in self.enrichment.adapters:
            if isinstance(adapter, Adapter) and adapter.fresh:
                adapter.initialise(torch_generator(header.seed, "adapter"))
        classes = len(header.classes)
        net = loaded_net(header.net, header.channels, classes, self.weights)
        net = net.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        # Statistics that are recalibrated afterwards are those of the batch also in training.
        net.train(self.recalibrates)
        asked = None
        if self.settings.loss == "teacher" and teacher is not None:
            asked = TeacherNet(teacher, classes, source, header.mean, header.std).to(device)
        self.enrichment.to(device)
        on_device = {name: tensor.to(device) for name, tensor in source.items()}
        losses = train_adapters(self.enrichment, net, on_device, asked, self.scene, self.settings)
        self.enrichment.cpu()
        self.told |= {"learnt": "public", "first_loss": losses[0], "last_loss": losses[-1]}

    @property
    def recalibrates(self) -> bool:
        """Whether the statistics of batch norms are measured again after a fusion."""
        asked, public = self.settings.bn_recalibrate, len(self.scene.public) > 0
        batch_norm = self.scene.briefing.header.net.norm == "batch"
        return batch_norm and (public if asked is None else asked)

    def fused(self, source: Tensors) -> Tensors:
        """The averaged net with its paired layers enriched."""
        self.enrichment.eval()
        with torch.no_grad():
            enriched = self.enrichment(self.weights, source)
        number = self.scene.briefing.header.round
        for own, values in enriched.items():
            if not bool(torch.isfinite(values).all()):
                raise ClientError(
                    f"the fusion of round {number} made {own} NaN or infinite. Use a smaller "
                    f"mergenet.lr than {self.settings.lr:g}."
                )
        self.told["change"] = _relative_change(self.weights, enriched)
        net = {**self.weights, **enriched}
        return recalibrated(net, self.scene, RECALIBRATING) if self.recalibrates else net


def _relative_change(before: Mapping[str, Tensor], after: Mapping[str, Tensor]) -> float:
    """‖Ŵ − W̄‖/‖W̄‖ over all paired layers."""
    change = nn.utils.get_total_norm([after[name] - before[name] for name in after])
    return float(change / nn.utils.get_total_norm([before[name] for name in after]))
