"""FedProx: a pull towards the server's weights (Li et al., 2020, arXiv:1812.06127)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from accord.objective.base import Batch, Term, terms


@terms.register("proximal")
class Proximal(Term):
    """μ/2 · ‖w − w₀‖² over all trained weights; w₀ are the weights in the round's briefing.

    The running statistics of batch normalisation are not trained weights and are left out.
    """

    mu: float = Field(0.01, gt=0, description="μ, the strength of the pull to the server's weights")

    def __call__(self, batch: Batch) -> Tensor:
        moved = [
            (w - start).square().sum()
            for w, start in zip(batch.parameters, batch.first_parameters, strict=True)
        ]
        return self.mu / 2 * torch.stack(moved).sum()
