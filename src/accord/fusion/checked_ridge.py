"""The closed form without clients whose sums make it worse on the server's own images."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor

from accord.closed_form.leaving import Checked, Gain, hits_without_each, relative_penalty
from accord.closed_form.sums import Sums
from accord.data.imageset import ImageSet
from accord.fusion.base import Scene, fusions
from accord.fusion.ridge import RidgeFusion
from accord.messages import NET, Briefing, Upload, unprefixed
from accord.nets.inference import forward_all
from accord.nets.net import loaded_net

MOST_IMAGES = 2_000  # images that are used for the check, at even distances
AHEAD = 2  # clients that are left out together if one alone does not help
ERRORS = 2.0  # standard errors: a smaller gain may be chance


@fusions.register("ridge-checked")
class CheckedRidge(RidgeFusion):
    """`ridge` without clients whose leaving raises the accuracy on the server's labelled images.

    The images are validation images or, without any, public ones; never test images. The client
    whose leaving helps most is dropped if the accuracy rises by more than `gain` and by more than
    two standard errors of the paired difference. Then the others are asked again. If no client
    alone helps, pairs are tried. Fewer than half of the clients are dropped.
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
        """The total of the clients that stay, and the gain of each one that was dropped.

        Two hostile clients can hide each other, so that one more client is left out for a trial
        before the search ends.
        """
        if scene.total is None:
            raise ValueError("the fusion 'ridge-checked' needs sums, but the uploads hold none")
        checked = checked_images(scene.labelled, scene.briefing)
        relative = relative_penalty(scene.total, self.penalty)
        total, hits = scene.total, checked.hits(scene.total, relative)
        trial, left, dropped = total, list[int](), dict[str, float]()
        while hits is not None and len(left) <= len(dropped) + AHEAD - 1:
            if 2 * len(left) + 2 >= len(scene.uploads):
                break
            best = self._best(trial, scene, left, checked, relative)
            if best is None:
                break
            place, found = best
            trial, left = trial - Sums.of(scene.uploads.load(place).tensors), [*left, place]
            one = Gain.of(hits, found)
            if one.gain > self.gain and one.gain > ERRORS * one.error:
                total, hits = trial, found
                names = [scene.uploads.load(k).header.client for k in left]
                dropped |= {f"dropped {name}": one.gain for name in names[len(dropped) :]}
        return total, dropped

    def _best(
        self, total: Sums, scene: Scene, left: list[int], checked: Checked, relative: float
    ) -> tuple[int, Tensor] | None:
        """The client without whom most images are right, and these images; None: nobody."""
        stay = [place for place in range(len(scene.uploads)) if place not in left]
        sums = (Sums.of(scene.uploads.load(place).tensors) for place in stay)
        each = zip(stay, hits_without_each(total, sums, checked, relative), strict=True)
        found = {place: hits for place, hits in each if hits is not None}
        best = max(found, key=lambda place: int(found[place].sum()), default=None)
        return None if best is None else (best, found[best])


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
