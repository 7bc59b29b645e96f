"""One round of FedAvg: the weighted mean of all weights, including the buffers of BatchNorm."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from pydantic import Field
from torch import Tensor

from accord.core.errors import AccordError
from accord.fusion.base import Merge, Scene, Vote, Weights, client_weights, fusions
from accord.fusion.outputs import OutputEnsemble
from accord.messages import NET, Upload, UploadHeader, prefixed, unprefixed
from accord.nets.inference import measure_batch_norms
from accord.nets.net import loaded_net

Tensors = dict[str, Tensor]


@fusions.register("average")
class Average(Merge):
    """W = Σ_k w_k W_k, also for BatchNorm's running mean and variance (not one client's own)."""

    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")
    recalibrate: bool = Field(
        False, description="measure the statistics of BatchNorm again, on the public images"
    )

    def require(self, norm: str, public: int) -> None:  # noqa: ARG002
        if self.recalibrate and not public:
            raise AccordError(
                "`recalibrate` needs public images, found none: set data.public, for example to "
                "0.1."
            )

    def asked(self) -> Vote:
        return OutputEnsemble()

    def merge(self, scene: Scene) -> Iterator[Upload]:
        weights = client_weights(scene.uploads.summaries(), self.weights).tolist()
        mean = weighted_mean(self.nets(scene), weights)
        if self.recalibrate:
            mean = recalibrated(mean, scene)
        yield one_net("average", mean, scene)

    def nets(self, scene: Scene) -> Iterator[Tensors]:
        """The weights that are averaged, client by client."""
        for index in range(len(scene.uploads)):
            yield unprefixed(NET, scene.uploads.load(index).tensors)


def weighted_mean(nets: Iterator[Tensors], weights: list[float]) -> Tensors:
    """Σ_k w_k W_k. Integers such as num_batches_tracked of BatchNorm are rounded to the nearest."""
    totals: Tensors = {}
    types: dict[str, torch.dtype] = {}
    for net, weight in zip(nets, weights, strict=True):
        for name, tensor in net.items():
            share = weight * tensor.double()
            totals[name] = totals[name] + share if name in totals else share
            types[name] = tensor.dtype
    return {
        name: (total if types[name].is_floating_point else total.round()).to(types[name])
        for name, total in totals.items()
    }


def one_net(name: str, weights: Tensors, scene: Scene) -> Upload:
    """A net of all clients, in the form of one client's upload."""
    if scene.total is None:
        told = [summary.label_counts for summary in scene.uploads.summaries()]
        counts, epoch = torch.stack(told).sum(dim=0), scene.uploads.summaries()[0].header.epoch
    else:
        counts, epoch = scene.total.counts, 1
    header = UploadHeader(
        client=name, epoch=epoch, samples=int(counts.sum()), briefing=scene.briefing.digest
    )
    return Upload(header, {**prefixed(NET, weights), "label_counts": counts})


def recalibrated(weights: Tensors, scene: Scene, most: int | None = None) -> Tensors:
    """The same net with the BatchNorm statistics measured over all public images.

    With `most`, only so many images are used, at even distances.
    """
    images = scene.public
    if most is not None and len(images) > most:
        images = images.take(np.linspace(0, len(images) - 1, most).round().astype(np.int64))
    header = scene.briefing.header
    net = loaded_net(header.net, header.channels, len(header.classes), weights).to(scene.device)
    measure_batch_norms(net, images, header, scene.device)
    return {name: tensor.cpu() for name, tensor in net.state_dict().items()}
