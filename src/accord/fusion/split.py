"""A split into base and head: the first blocks are shared, the rest is not.

Note 002 (docs/notes.md) proposes this as its plan 2.
"""

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
    """The first ℓ_k of L blocks are averaged; client k keeps its own later blocks.

    With `decides: server`, ℓ = round(s·L), where s is the mean cosine of two clients' label
    histograms: clients with similar labels share more blocks. With `client`, each client decides by
    the entropy of its own labels, ℓ_k = round(L·H_k/log C). `before` is the same as `server`, but ℓ
    is set before training, from the histograms alone, which needs one more exchange. Block b of
    client k becomes the mean over the clients of its cluster that share block b. The result is one
    personal net per client, and `features` combines all of them. The BatchNorm layers of later
    blocks were not trained on the averaged features: unless clients are similar, the accuracy
    falls strongly. Linear heads of one-class clients cause the same problem as with `features`.
    """

    personal: ClassVar[bool] = True
    decides: Literal["server", "client", "before"] = Field(
        "server", description="who sets ℓ, and when"
    )
    blocks: int | None = Field(None, ge=0, description="a fixed ℓ, which replaces `decides`")
    cluster: float | None = Field(
        None,
        ge=0,
        le=1,
        description="only clients whose label histograms have at least this cosine share blocks",
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
    """The mean cosine of two different rows; 1 if there is only one row."""
    if len(p) < 2:
        return 1.0
    unit = F.normalize(p, dim=1)
    cosines = (unit @ unit.T)[~torch.eye(len(p), dtype=torch.bool)]
    return float(cosines.mean())


def clusters(p: Tensor, least: float | None) -> list[int]:
    """The cluster number of each row. Rows whose cosine is at least `least` are joined."""
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
    """The name prefixes of the encoder's stages in order, which is not the order in a file."""
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
