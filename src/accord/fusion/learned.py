"""Global prototypes that the server learns from those of clients (a plan for OursV9)."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.core.budget import MOST_EPOCHS
from accord.fusion.base import Combiner, Summary, Vote, Weights, client_weights, fusions
from accord.fusion.features import FeatureCombiner
from accord.messages import Briefing


@fusions.register("learned")
class LearnedPrototypes(Vote):
    """`features` with G instead of P: Adam minimises Σ_k CE(P_k Gᵀ, I) + μ·MSE(G, A) over G.

    G starts at the mean of the P_k. Without anchors A in the briefing there is no second term.
    Linear heads of one-class clients cause the same problem as with `features`.
    """

    weights: Weights = Field("count", description="w_k: count (n_k), sqrt (√n_k) or equal")
    epochs: int = Field(
        20, ge=1, le=MOST_EPOCHS, description="number of steps, each over all clients"
    )
    lr: float = Field(1e-3, gt=0, description="learning rate of Adam")
    pull: float = Field(0.1, ge=0, description="μ, the weight of the pull to the anchors")

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:
        each = torch.stack([client.prototypes for client in clients])
        learnt = self.learn(each, briefing.tensors.get("anchors"))
        return FeatureCombiner(weights=client_weights(clients, self.weights), prototypes=learnt)

    def learn(self, each: Tensor, anchors: Tensor | None) -> Tensor:
        """G, learnt from the clients' prototypes (K, C, d)."""
        with torch.enable_grad():
            G = each.mean(dim=0).clone().requires_grad_()
            adam = torch.optim.Adam([G], lr=self.lr)
            own = torch.arange(len(G))
            for _ in range(self.epochs):
                loss = torch.stack([F.cross_entropy(P @ G.T, own) for P in each]).sum()
                if anchors is not None:
                    loss = loss + self.pull * F.mse_loss(G, anchors)
                adam.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                adam.step()
        return G.detach()
