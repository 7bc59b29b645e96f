"""The images of a client's training: its own and, if the recipe says so, the public ones."""

from __future__ import annotations

import numpy as np
import torch

from accord.core.errors import AccordError
from accord.data.imageset import ImageSet, Joined, LabelledImages
from accord.messages import PUBLIC, Briefing, TrainingSpec


def studied_images(own: ImageSet, briefing: Briefing) -> LabelledImages:
    """The client's own images, followed by the public images of the briefing, if it has some."""
    public = public_images(briefing)
    return own if public is None else Joined(own, public)


def public_images(briefing: Briefing) -> ImageSet | None:
    """The labelled public images that a briefing carries; None if it carries none."""
    header = briefing.header
    if not isinstance(header.training, TrainingSpec) or not header.training.with_public:
        return None
    images, labels = (briefing.tensors.get(PUBLIC + name) for name in ("images", "labels"))
    side = (header.height, header.width, header.channels)
    if (
        images is None
        or labels is None
        or images.dtype != torch.uint8
        or labels.dtype != torch.int64
        or images.shape != (labels.numel(), *side)
        or bool(((labels < 0) | (labels >= len(header.classes))).any())
    ):
        raise AccordError(
            "the briefing is damaged: expected public images of the study's size, with one label "
            "of its classes each; found others. Fetch it again."
        )
    return ImageSet(images.numpy(), np.arange(len(images)), labels.numpy())


def without_public(briefing: Briefing) -> Briefing:
    """The same briefing for a client that trains on its own images only."""
    header = briefing.header
    if not isinstance(header.training, TrainingSpec) or not header.training.with_public:
        return briefing
    training = header.training.model_copy(update={"with_public": False})
    tensors = {n: t for n, t in briefing.tensors.items() if not n.startswith(PUBLIC)}
    return Briefing(header.model_copy(update={"training": training}), tensors)
