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
    """argmax_c ⟨norm(Σ_k w_k f_k(x)), P[c]⟩, P merged over clients."""

    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")
    merge: Literal["mean", "count"] = Field(
        "mean", description="P[c] = mean over clients of P_k[c], or weighted by n_kc"
    )

    def combiner(self, clients: Sequence[Summary]) -> Combiner:
        P = torch.stack([client.prototypes for client in clients])
        if self.merge == "mean":
            merged = P.mean(dim=0)
        else:
            counts = torch.stack([client.label_counts for client in clients]).double()
            # A class nobody holds has no counts to weigh by: plain mean.
            counts[:, counts.sum(dim=0) == 0] = 1
            merged = torch.einsum("kc,kcd->cd", (counts / counts.sum(dim=0)).float(), P)
        return FeatureCombiner(client_weights(clients, self.weights), merged)


@dataclass(frozen=True)
class FeatureCombiner:
    weights: Tensor
    prototypes: Tensor

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        return outputs.features * self.weights[client].float()

    def decide(self, total: Tensor) -> Tensor:
        return F.normalize(total, dim=1) @ self.prototypes.T
