"""The inputs of the loss terms in a step: the net's outputs for a batch, and constants.

The constants come from the briefing and from the client's own label counts.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypedDict

import torch
from torch import Tensor, nn

from accord.client.base import Precision
from accord.client.batches import class_shares
from accord.data.augmentations import augmentations
from accord.data.imageset import LabelledImages
from accord.data.views import augment
from accord.messages import BANK, TEACHER, Briefing, TrainingSpec, unprefixed
from accord.nets.net import Net
from accord.nets.teacher import TeacherNet
from accord.objective import Batch
from accord.objective.negatives import Rows
from accord.objective.reference import Reference

LESSON = frozenset({"targets", "target_features"})  # tensors of a briefing with a row per image


class Constants(TypedDict):
    """The fields of a `Batch` that are the same in every step of a round."""

    label_counts: Tensor
    anchors: Tensor | None
    first_prototypes: Tensor
    parameters: tuple[nn.Parameter, ...]
    first_parameters: tuple[Tensor, ...]
    bank: Rows | None
    reference: Reference | None


def constants_of(
    briefing: Briefing,
    asked: TrainingSpec,
    label_counts: Tensor,
    net: Net,
    device: torch.device,
) -> Constants:
    """The constants of a client with n_c images of class c; `net` has not been trained yet."""
    tensors, counts = briefing.tensors, label_counts.to(device)
    shares = class_shares(asked.batches, counts)
    anchors, bank = tensors.get("anchors"), None
    if BANK + "labels" in tensors:
        bank = Rows(tensors[BANK + "features"].to(device), tensors[BANK + "labels"].to(device))
    parameters = tuple(p for p in net.parameters() if p.requires_grad)
    return {
        "label_counts": counts,
        "anchors": None if anchors is None else anchors.to(device),
        "first_prototypes": net.head.prototypes.detach().clone(),
        "parameters": parameters,
        "first_parameters": tuple(p.detach().clone() for p in parameters),
        "bank": bank,
        "reference": None if bank is None else Reference(bank, shares),
    }


class StepInputs:
    """Makes the batches of one client's training."""

    def __init__(
        self,
        data: LabelledImages,
        briefing: Briefing,
        asked: TrainingSpec,
        net: Net,
        precision: Precision,
    ) -> None:
        self.data, self.briefing, self.asked, self.net = data, briefing, asked, net
        self.precision = precision
        self.labels = torch.from_numpy(data.labels)
        counts = data.label_counts(len(briefing.header.classes))
        self.constants = constants_of(briefing, asked, counts, net, precision.device)
        self.teacher = self._teacher()
        self.encode: Callable[[Tensor], Tensor] = net.encoder
        if precision.compile:
            # Measuring the gradients uses the graph before the backward pass needs it again.
            torch._functorch.config.donated_buffer = False
            self.encode = torch.compile(net.encoder)

    def _teacher(self) -> TeacherNet | None:
        """The server's teacher, if the briefing holds one."""
        header = self.briefing.header
        if header.teacher is None:
            return None
        weights, classes = unprefixed(TEACHER, self.briefing.tensors), len(header.classes)
        found = TeacherNet(header.teacher, classes, weights, header.mean, header.std)
        return found.to(self.precision.device, memory_format=torch.channels_last)  # type: ignore[call-overload,no-any-return]

    def _lesson(self, seen: Tensor, positions: Tensor) -> dict[str, Tensor]:
        """What a teacher says of each view: given with the briefing, or asked now."""
        views, device = self.asked.views, self.precision.device
        lesson = {
            name: self.briefing.tensors[name][positions].repeat(views, 1).to(device)
            for name in LESSON.intersection(self.briefing.tensors)
        }
        if self.teacher is not None:
            with torch.no_grad():
                lesson["teacher_logits"] = self.teacher(seen)
        return lesson

    def batch(
        self, positions: Tensor, progress: float, draws: torch.Generator, queue: Rows | None
    ) -> Batch:
        """Random views of the images at `positions`, with the net's outputs for them."""
        header, views = self.briefing.header, self.asked.views
        if views * len(positions) < 2:
            # Batch norm needs two rows, so a single image is used in two views.
            positions = positions.repeat(2)
        device = self.precision.device
        images = self.data.batch(positions).to(device)
        seen = augment(
            images, augmentations.get(header.augment), views, draws, header.mean, header.std
        )
        with torch.autocast(device.type, torch.bfloat16, enabled=self.precision.autocast):
            features = self.encode(seen)
            logits = self.net.head(features)
        return Batch(
            features=features.float(),
            logits=logits.float(),
            labels=self.labels[positions].repeat(views).to(device),
            lesson=self._lesson(seen, positions),
            prototypes=self.net.head.prototypes,
            queue=queue,
            progress=progress,
            **self.constants,
        )
