"""The fusion of FedSRA: every client's features are standardised before they are added."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.fusion.base import Combiner, Outputs, Summary, Weights, client_weights, fusions
from accord.fusion.features import FeatureCombiner, Features
from accord.fusion.merging import merge_prototypes, prototypes_of
from accord.messages import Briefing

FLAT = 1e-6  # the smallest variance, for features that are constant


@fusions.register("standardised")
class Standardised(Features):
    """argmax_c cos(Σ_k w_k f̂_k(x), P[c]) with f̂ = (f − μ_k)/σ_k, elementwise.

    μ_k and σ_k are the moments in the client's upload and never those of test images, so that a
    prediction does not depend on the other images of its batch. With `prototypes: means`, the class
    means are standardised like the features. A client with one class divides by the small standard
    deviation within that class and therefore has too much influence: on digits, with one such
    client of four the accuracy falls by some points, with three of four to near chance.
    """

    weights: Weights = Field("sqrt", description="w_k: count (n_k), sqrt (√n_k) or equal")

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:  # noqa: ARG002
        mean = torch.stack([client.tensors["feature_mean"] for client in clients])
        variance = torch.stack([client.tensors["feature_var"] for client in clients])
        scale = variance.clamp(min=FLAT).sqrt()
        each = prototypes_of(clients, self.prototypes)
        if self.prototypes == "means":
            each = (each - mean[:, None]) / scale[:, None]
        merged = merge_prototypes(each, clients, self.prototypes, self.merge)
        return StandardisedCombiner(
            weights=client_weights(clients, self.weights),
            mean=mean,
            scale=scale,
            prototypes=F.normalize(merged, dim=1),
        )


class StandardisedCombiner(FeatureCombiner, name="standardised"):
    mean: Tensor
    scale: Tensor

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        standard = (outputs.features - self.mean[client]) / self.scale[client]
        return super().vote(client, Outputs(standard, outputs.logits))
