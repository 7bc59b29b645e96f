"""The output ensemble, which averages the clients' probabilities."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from accord.fusion.base import (
    Combiner,
    Outputs,
    Summary,
    Vote,
    Weights,
    client_weights,
    fusions,
)
from accord.messages import Briefing


@fusions.register("outputs")
class OutputEnsemble(Vote):
    """Σ_k w_k softmax(logits_k(x)); with `prior`, log prior_k is first subtracted from logits_k.

    `prior` is for nets that have learnt the label prior by cross-entropy. A balanced softmax has
    already removed it. If it is removed twice, classes that a client has never seen get the highest
    scores, and the accuracy is near chance.
    """

    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")
    prior: bool = Field(
        False,
        description="subtract the log of the client's label prior, which is smoothed as n_kc + 1",
    )

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:  # noqa: ARG002
        counts = torch.stack([client.label_counts for client in clients]).double() + 1
        log_prior = (counts / counts.sum(dim=1, keepdim=True)).log().float()
        shift = log_prior if self.prior else torch.zeros_like(log_prior)
        return OutputCombiner(weights=client_weights(clients, self.weights), shift=shift)


class OutputCombiner(Combiner, name="outputs"):
    weights: Tensor
    shift: Tensor

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        votes = (outputs.logits - self.shift[client]).softmax(dim=1)
        return votes * self.weights[client].float()

    def decide(self, total: Tensor) -> Tensor:
        # A probability may underflow to 0; its log must stay finite.
        return total.clamp(min=torch.finfo(total.dtype).tiny).log()
