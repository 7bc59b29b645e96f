"""The fusion of FAFI's released code: mean features are compared with merged prototypes."""

from __future__ import annotations

from collections.abc import Sequence

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
from accord.fusion.merging import (
    MERGING,
    SOURCE,
    Merging,
    Source,
    merge_prototypes,
    prototypes_of,
)
from accord.messages import Briefing


@fusions.register("features")
class Features(Vote):
    """argmax_c ⟨norm(Σ_k w_k f_k(x)), P[c]⟩, where P is merged over the clients.

    With `prototypes: means`, P[c] is the unit direction of the mean feature of class c, and the
    heads are not used: this is the nearest class mean (one-shot FedProto with `merge: count`). The
    linear head of a client with one class has one long row. Then `merge` by count or reliability
    predicts this class for every image, and the accuracy falls to chance; `merge: mean` does the
    same if most clients have one class. Heads of unit prototypes, `merge: confidence` and class
    means do not have this problem.
    """

    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")
    prototypes: Source = Field("head", description=SOURCE)
    merge: Merging = Field("mean", description=MERGING)

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:  # noqa: ARG002
        weights = client_weights(clients, self.weights)
        return FeatureCombiner(weights=weights, prototypes=self.merged(clients))

    def merged(self, clients: Sequence[Summary]) -> Tensor:
        each = prototypes_of(clients, self.prototypes)
        merged = merge_prototypes(each, clients, self.prototypes, self.merge)
        return F.normalize(merged, dim=1) if self.prototypes == "means" else merged


class FeatureCombiner(Combiner, name="features"):
    weights: Tensor
    prototypes: Tensor

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        return outputs.features * self.weights[client].float()

    def decide(self, total: Tensor) -> Tensor:
        return F.normalize(total, dim=1) @ self.prototypes.T
