"""The closed form without clients whose sums make it worse on the server's own images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field

from accord.closed_form.leaving import Checked, Gain, gains_without_each
from accord.closed_form.sums import Sums
from accord.data.imageset import ImageSet
from accord.fusion.base import Scene, fusions
from accord.fusion.ridge import RidgeFusion
from accord.messages import NET, Briefing, Upload, unprefixed
from accord.nets.inference import forward_all
from accord.nets.net import loaded_net

MOST_IMAGES = 2_000  # images that are used for the check, at even distances
ERRORS = 2.0  # standard errors: a smaller gain may be chance


@fusions.register("ridge-checked")
class CheckedRidge(RidgeFusion):
    """`ridge` without clients whose leaving raises the accuracy on the server's labelled images.

    The images are validation images or, without any, public ones; never test images. The client
    whose leaving helps most is dropped if the accuracy rises by more than `gain` and by more than
    two standard errors of the paired difference. Then the others are asked again. Fewer than half
    of the clients are dropped.
    """

    needs_labelled: ClassVar[bool] = True
    gain: float = Field(
        0.01, ge=0, lt=1, description="smallest rise of the accuracy for which a client is dropped"
    )

    def merge(self, scene: Scene) -> Iterator[Upload]:
        total, dropped = self.kept(scene)
        for found in super().merge(replace(scene, total=total)):
            event = {**found.header.telemetry[-1], **dropped}
            header = found.header.model_copy(update={"telemetry": (event,)})
            yield Upload(header, found.tensors)

    def kept(self, scene: Scene) -> tuple[Sums, dict[str, float]]:
        """The total of the clients that stay, and the gain of each one that was dropped."""
        if scene.total is None:
            raise ValueError("the fusion 'ridge-checked' needs sums, but the uploads hold none")
        total, checked = scene.total, checked_images(scene.labelled, scene.briefing)
        stay = list(range(len(scene.uploads)))
        dropped: dict[str, float] = {}
        while 2 * len(dropped) + 2 < len(scene.uploads):
            worst = self._worst(total, scene, stay, checked)
            if worst is None:
                break
            place, gain = worst
            upload = scene.uploads.load(place)
            total, dropped = (
                total - Sums.of(upload.tensors),
                {**dropped, f"dropped {upload.header.client}": gain},
            )
            stay.remove(place)
        return total, dropped

    def _worst(
        self, total: Sums, scene: Scene, stay: list[int], checked: Checked
    ) -> tuple[int, float] | None:
        """The client whose leaving helps most, and by how much; None if none helps enough."""
        sums = (Sums.of(scene.uploads.load(place).tensors) for place in stay)
        found = zip(stay, gains_without_each(total, sums, checked, self.penalty), strict=True)
        known = {place: one.gain for place, one in found if one is not None and self._clear(one)}
        best = max(known, key=known.__getitem__, default=None)
        return None if best is None else (best, known[best])

    def _clear(self, one: Gain) -> bool:
        return one.gain > self.gain and one.gain > ERRORS * one.error


def checked_images(images: ImageSet, briefing: Briefing) -> Checked:
    """Labelled images of the server as features of the briefing's map, at most MOST_IMAGES."""
    step = -(-len(images) // MOST_IMAGES)
    some = images.slice(0, len(images), max(1, step))
    header = briefing.header
    weights = unprefixed(NET, briefing.tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights)
    batches = forward_all(net, some, header, torch.device("cpu"))
    features = torch.cat([features for features, _, _ in batches])
    return Checked(features, torch.from_numpy(some.labels))
