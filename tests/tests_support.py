"""Real digits and briefings for tests that need neither a record nor an engine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor

from accord.client.base import answer
from accord.client.make import make_client
from accord.core.budget import Budget
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.data.images import Bytes, Labels
from accord.data.imageset import ImageSet
from accord.messages import (
    BANK,
    NET,
    PUBLIC,
    TEACHER,
    Briefing,
    BriefingHeader,
    NetHeader,
    TeacherHeader,
    Upload,
    prefixed,
)
from accord.nets.net import fresh_net
from accord.objective import anchor_kinds
from accord.objective.bank import choose, stand_in
from accord.study.recipe import TrainingRecipe
from accord.study.resolve import resolve

CLASSES = tuple(str(digit) for digit in range(10))


@cache
def digits() -> tuple[Bytes, Labels]:
    bunch = load_digits()
    images = np.round(bunch.images * (255 / 16)).astype(np.uint8)[..., None]
    return images, bunch.target.astype(np.int64)


def images_of(labels: Sequence[int]) -> ImageSet:
    """Real digits with these labels, in this order; no image twice."""
    images, targets = digits()
    left = {label: list(np.flatnonzero(targets == label)) for label in set(labels)}
    rows = np.array([left[label].pop(0) for label in labels], dtype=np.int64)
    return ImageSet(images, rows, np.array(labels, dtype=np.int64))


def brief_for(
    recipe: str,
    *,
    seed: int = 0,
    backbone: str = "conv4",
    change: dict[str, Any] | None = None,
    **budget: Any,
) -> Briefing:
    """A briefing on digits: `recipe` with `change`, a small net, two epochs unless told."""
    resolved = training_recipe({"use": recipe, **(change or {})})
    header = BriefingHeader(
        seed=seed,
        height=8,
        width=8,
        channels=1,
        classes=CLASSES,
        mean=(0.3,),
        std=(0.35,),
        augment="digits",
        net=NetHeader(backbone=backbone, norm="batch", head=resolved.head),
        training=resolved.training,
        budget=Budget(**{"epochs": 2, "batch": 32, **budget}),
    )
    net = fresh_net(header.net, 1, 10, torch_generator(seed, "net"))
    tensors = prefixed(NET, net.state_dict())
    if resolved.clients_ask_teacher:
        teacher = TeacherHeader(net=header.net, mean=header.mean, std=header.std)
        header = header.model_copy(update={"teacher": teacher})
        taught = fresh_net(header.net, 1, 10, torch_generator(seed, "teacher"))
        tensors |= prefixed(TEACHER, taught.state_dict())
    if resolved.with_public:
        some = images_of([*range(10)] * 2)
        images, labels = some.batch(torch.arange(20)), torch.from_numpy(some.labels)
        tensors |= {PUBLIC + "images": images, PUBLIC + "labels": labels}
    if resolved.anchors:
        kind = make_part(anchor_kinds, resolved.anchors, "anchors")
        tensors["anchors"] = kind.make(10, net.encoder.width, torch_generator(seed, "anchors"))
    if resolved.bank:
        public = stand_in(digits()[1][-300:], net.encoder.width)
        bank = choose(public, resolved.bank, seed)
        tensors |= {BANK + "features": bank.features, BANK + "labels": bank.labels}
    return Briefing(header, tensors)


def training_recipe(use: Any, folder: Path = Path()) -> TrainingRecipe:
    """A recipe whose clients train."""
    recipe = resolve(use, folder)
    assert isinstance(recipe, TrainingRecipe)
    return recipe


def train(data: ImageSet, briefing: Briefing, name: str) -> Upload:
    """The upload of a client after all epochs of its round."""
    return answer(make_client(data, briefing, name))


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """The same names, holding the same bits."""
    return a.keys() == b.keys() and all(torch.equal(a[name], b[name]) for name in a)


def without_seconds(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Telemetry without what a clock decides."""
    return [{k: v for k, v in event.items() if k != "seconds"} for event in events]
