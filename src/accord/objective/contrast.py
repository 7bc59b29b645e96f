"""Supervised contrast (Khosla et al., 2020, arXiv 2004.11362, L_out)."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from accord.objective.base import Batch, Term, terms


@terms.register("contrast")
class Contrast(Term):
    """SupCon(z; τ): images of a class attract, all others repel.

    L = mean_i −1/|P(i)| Σ_{p ∈ P(i)} log( exp(z_i·z_p/τ) / Σ_{a ≠ i} exp(z_i·z_a/τ) ),
    P(i) = the other rows with i's label. A row without positives does not count.
    """

    temperature: float = Field(0.07, ge=1e-3, description="τ; note 000 used 0.5")

    def __call__(self, batch: Batch) -> Tensor:
        z, y = batch.directions, batch.labels
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        similarity = (z @ z.T / self.temperature).masked_fill(itself, float("-inf"))
        log_probability = similarity - similarity.logsumexp(dim=1, keepdim=True)
        positive = (y[:, None] == y[None, :]) & ~itself
        count = positive.sum(dim=1)
        # The diagonal is −inf: it must be replaced, not multiplied by zero.
        pulled = log_probability.masked_fill(~positive, 0).sum(dim=1)
        rows = (count > 0).sum().clamp(min=1)
        return -(pulled / count.clamp(min=1)).sum() / rows
