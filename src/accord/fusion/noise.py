"""IFFI as the FAFI paper describes it: features similar to those of noise have a smaller weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.fusion.base import Combiner, Outputs, Summary, client_weights, fusions
from accord.fusion.features import FeatureCombiner, Features
from accord.messages import Briefing


class NoiseCombiner(FeatureCombiner, name="noise"):
    noise: Tensor  # (K, d)

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        likeness = F.cosine_similarity(outputs.features, self.noise[client][None], dim=1)
        return super().vote(client, outputs) * (1 - likeness)[:, None]


@fusions.register("noise")
class NoiseWeighted(Features):
    """`features` with w_k(x) ∝ w_k · (1 − cos(f_k(x), f_k(noise))), per client and image.

    f_k(noise) is the client's mean feature of noise images, which are the same at every client; it
    is part of the upload. FAFI's released code averages this weight over clients, so it cancels.
    """

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:  # noqa: ARG002
        noise = torch.stack([client.tensors["noise_feature"] for client in clients])
        weights = client_weights(clients, self.weights)
        return NoiseCombiner(weights=weights, prototypes=self.merged(clients), noise=noise)
