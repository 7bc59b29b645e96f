"""What leaving out each client would change, on labelled images of the server."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

import torch
from torch import Tensor

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign
from accord.closed_form.leaving import Gain, gains_without_each
from accord.closed_form.sums import Sums
from accord.core.names import shown
from accord.data.imageset import ImageSet
from accord.federation.pooled_sums import total_of
from accord.fusion.average import Average
from accord.fusion.base import Vote, client_weights
from accord.fusion.checked_ridge import checked_images
from accord.fusion.coordinates import CoordinateWise
from accord.fusion.details import MOST_CLIENTS, scores_without_each
from accord.fusion.ridge import RidgeFusion
from accord.messages import NET, Upload, unprefixed
from accord.nets.inference import forward_all
from accord.nets.net import loaded_net

ERRORS = 3.0  # standard errors of the paired difference
POINTS = 0.03  # a smaller gain is no clear sign


@kinds.register("leaving")
class Leaving(Kind):
    """The accuracy of the trial's own fusion without each client, minus that of all clients.

    Votes are added again without the client. A mean of nets is the running mean minus the client's
    share. For sums, the client's sums are subtracted from the total.
    """

    name = "leaving"
    quick: ClassVar[bool] = False

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.clients: list[str] = []

    def see(self, upload: Upload) -> None:
        self.clients.append(upload.header.client)

    def judge(self) -> Iterable[Sign]:
        images = self.case.labelled
        if images is None or len(self.clients) < 3:
            return
        for client, one in zip(self.clients, self._gains(images), strict=False):
            if one is None:
                continue
            strength = min(one.gain / POINTS, one.gain / max(ERRORS * one.error, 1e-9))
            yield Sign(
                client,
                self.name,
                max(strength, 0.0),
                f"without client {shown(client)} the accuracy on the {self.case.part} images is "
                f"{100 * one.after:.1f} % instead of {100 * one.before:.1f} %",
            )

    def _gains(self, images: ImageSet) -> Iterator[Gain | None]:
        rule, case = self.case.rule, self.case
        if isinstance(rule, RidgeFusion):
            parts = (Sums.of(case.files.load(k).tensors) for k in range(len(case.files)))
            checked = checked_images(images, case.briefing)
            yield from gains_without_each(total_of(case.files, None), parts, checked)
        elif isinstance(rule, Vote) and len(self.clients) <= MOST_CLIENTS:
            yield from self._of_votes(rule, torch.from_numpy(images.labels))
        elif isinstance(rule, Average | CoordinateWise):
            yield from self._of_mean(images)

    def _of_votes(self, rule: Vote, labels: Tensor) -> Iterator[Gain | None]:
        files, outputs = self.case.files, self.case.outputs
        combiner = rule.combiner(files.summaries(), files.briefing)
        votes = [combiner.vote(k, one) for k, one in enumerate(outputs)]
        before = combiner.decide(torch.stack(votes).sum(dim=0)).argmax(dim=1) == labels
        for scores in scores_without_each(rule, files, outputs):
            yield Gain.of(before, scores.argmax(dim=1) == labels)

    def _of_mean(self, images: ImageSet) -> Iterator[Gain | None]:
        """The mean of the nets, weighted by counts, without each client."""
        files = self.case.files
        weights = client_weights(files.summaries(), "count").tolist()
        total: dict[str, Tensor] = {}
        for index, weight in enumerate(weights):
            for name, tensor in unprefixed(NET, files.load(index).tensors).items():
                share = weight * tensor.double()
                total[name] = total[name] + share if name in total else share
        before = self._hits(total, 1.0, images)
        for index, weight in enumerate(weights):
            own = unprefixed(NET, files.load(index).tensors)
            rest = {name: total[name] - weight * t.double() for name, t in own.items()}
            yield Gain.of(before, self._hits(rest, 1 - weight, images))

    def _hits(self, summed: dict[str, Tensor], weight: float, images: ImageSet) -> Tensor:
        header = self.case.briefing.header
        like = unprefixed(NET, self.case.briefing.tensors)
        net = {
            name: (t / weight if like[name].is_floating_point() else (t / weight).round()).to(
                like[name].dtype
            )
            for name, t in summed.items()
        }
        made = loaded_net(header.net, header.channels, len(header.classes), net)
        batches = forward_all(made, images, header, torch.device("cpu"))
        return torch.cat([logits.argmax(dim=1) == labels for _, logits, labels in batches])
