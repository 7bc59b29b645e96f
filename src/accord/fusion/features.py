"""FAFI's release: features are averaged over clients and compared with merged prototypes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.fusion.base import (
    Combiner,
    Outputs,
    Summary,
    Vote,
    Weights,
    client_weights,
    fusions,
)


@fusions.register("features")
class Features(Vote):
    """argmax_c ⟨norm(Σ_k w_k f_k(x)), P[c]⟩, P merged over clients.

    With `prototypes: means` P[c] is the unit direction of the mean feature of class c over all
    clients' images of it, and no head is asked: the nearest class mean.
    """

    prototypes: Literal["head", "means"] = Field(
        "head", description="P_k: the client's learnt prototypes, or its class means of f"
    )
    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")
    merge: Literal["mean", "count"] = Field(
        "mean", description="P[c] = mean over clients of P_k[c], or weighted by n_kc, as means are"
    )

    def combiner(self, clients: Sequence[Summary]) -> Combiner:
        weights = client_weights(clients, self.weights)
        if self.prototypes == "means":
            means = torch.stack([client.class_means for client in clients])
            return FeatureCombiner(weights, F.normalize(_by_count(means, clients), dim=1))
        P = torch.stack([client.prototypes for client in clients])
        merged = P.mean(dim=0) if self.merge == "mean" else _by_count(P, clients)
        return FeatureCombiner(weights, merged)


def _by_count(each: Tensor, clients: Sequence[Summary]) -> Tensor:
    """Σ_k n_kc P_k[c] / Σ_k n_kc; of a class that nobody holds the plain mean."""
    counts = torch.stack([client.label_counts for client in clients]).double()
    counts[:, counts.sum(dim=0) == 0] = 1
    return torch.einsum("kc,kcd->cd", (counts / counts.sum(dim=0)).float(), each)


@dataclass(frozen=True)
class FeatureCombiner:
    weights: Tensor
    prototypes: Tensor

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        return outputs.features * self.weights[client].float()

    def decide(self, total: Tensor) -> Tensor:
        return F.normalize(total, dim=1) @ self.prototypes.T
