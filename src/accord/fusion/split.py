"""Base and head apart (note 002, plan 2): first blocks are shared, the rest is each client's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.fusion.average import Tensors, weighted_mean
from accord.fusion.base import Merge, Scene, Summary, Vote, Weights, client_weights, fusions
from accord.fusion.features import Features
from accord.messages import NET, Upload, prefixed, unprefixed
from accord.nets.backbones.base import build_encoder


@fusions.register("split")
class Split(Merge):
    """Client k keeps its own blocks after the first ℓ_k of L; the others are averaged.

    The more alike the clients' labels, the more is shared: ℓ = round(s·L), s the mean cosine of
    two clients' label histograms (`server`); or each client decides by itself, by the entropy of
    its own: ℓ_k = round(L·H_k/log C) (`client`). `before` is `server` agreed upon before training,
    by histograms alone: one more exchange. Block b of client k becomes the mean over those clients
    of its cluster that share block b. The result is one net per client, personal to it, and all
    of them answer together as `features` do. Batch norms of later blocks never saw the averaged
    features: expect to lose much unless clients are alike. One-class clients weigh on linear heads
    as they do with `features`.
    """

    personal: ClassVar[bool] = True
    decides: Literal["server", "client", "before"] = Field("server", description="who sets ℓ")
    blocks: int | None = Field(None, ge=0, description="ℓ itself, instead of all that")
    cluster: float | None = Field(
        None,
        ge=0,
        le=1,
        description="clients whose histograms have at least this cosine share with each other only",
    )
    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")

    @property
    def exchanges(self) -> int:
        return 2 if self.decides == "before" else 1

    def asked(self) -> Vote:
        return Features()

    def merge(self, scene: Scene) -> Iterator[Upload]:
        clients = scene.uploads.summaries()
        stages = _stages(scene)
        shared = self.shared(clients, len(stages))
        cluster = clusters(histograms(clients), self.cluster)
        weights = client_weights(clients, self.weights)
        means: dict[tuple[int, int], Tensors] = {}
        for index in range(len(clients)):
            upload = scene.uploads.load(index)
            net = unprefixed(NET, upload.tensors)
            for block in range(shared[index]):
                group = (cluster[index], block)
                if group not in means:
                    near = [k for k, other in enumerate(cluster) if other == cluster[index]]
                    members = [k for k in near if shared[k] > block]
                    means[group] = _mean_block(scene, members, weights, stages[block])
                net |= means[group]
            yield Upload(upload.header, {**upload.tensors, **prefixed(NET, net)})

    def shared(self, clients: Sequence[Summary], depth: int) -> list[int]:
        """ℓ_k of every client."""
        if self.blocks is not None:
            return [min(self.blocks, depth)] * len(clients)
        p = histograms(clients)
        if self.decides == "client":
            entropy = -(p * p.clamp(min=1e-12).log()).sum(dim=1)
            ratio = entropy / torch.tensor(float(p.shape[1])).log()
            return [round(value * depth) for value in ratio.tolist()]
        return [round(likeness(p) * depth)] * len(clients)


def histograms(clients: Sequence[Summary]) -> Tensor:
    counts = torch.stack([client.label_counts for client in clients]).double()
    return counts / counts.sum(dim=1, keepdim=True)


def likeness(p: Tensor) -> float:
    """The mean cosine of two different rows; 1 for a lone row."""
    if len(p) < 2:
        return 1.0
    unit = F.normalize(p, dim=1)
    cosines = (unit @ unit.T)[~torch.eye(len(p), dtype=torch.bool)]
    return float(cosines.mean())


def clusters(p: Tensor, least: float | None) -> list[int]:
    """The number of each row's cluster: rows are joined whose cosine is at least `least`."""
    found = list(range(len(p)))
    if least is None:
        return [0] * len(p)
    unit = F.normalize(p, dim=1)
    alike = (unit @ unit.T) >= least
    for a in range(len(p)):
        for b in range(a):
            if alike[a, b]:
                found = [found[b] if group == found[a] else group for group in found]
    return found


def _stages(scene: Scene) -> list[str]:
    """The prefixes of the encoder's stages, in order; that of tensors in a file says nothing."""
    header = scene.briefing.header
    encoder = build_encoder(header.net.backbone, header.channels, header.net.norm)
    return [f"encoder.stages.{name}." for name, _ in encoder.stages.named_children()]


def _mean_block(scene: Scene, members: list[int], weights: Tensor, prefix: str) -> Tensors:
    """The mean of one stage over some clients."""
    chosen = weights[members] / weights[members].sum()

    def blocks() -> Iterator[Tensors]:
        for index in members:
            net = unprefixed(NET, scene.uploads.load(index).tensors)
            yield {name: tensor for name, tensor in net.items() if name.startswith(prefix)}

    return weighted_mean(blocks(), chosen.tolist())
