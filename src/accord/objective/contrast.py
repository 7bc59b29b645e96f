"""Supervised contrastive loss (Khosla et al., 2020, arXiv 2004.11362, L_out) and its negatives."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.objective.base import Batch, Term, terms
from accord.objective.negatives import Pull, Rows, hardest, hardness_of, outside


@terms.register("contrast")
class Contrast(Term):
    """SupCon(z; τ): images of the same class attract each other, all other images repel.

    L = mean_i −1/|P(i)| Σ_{p ∈ P(i)} log( exp(z_i·z_p/τ) / Σ_a w_ia exp(z_i·z_a/τ) ),
    P(i) is the set of the other rows with the label of i; a runs over all rows except i, and over
    the rows of queue and bank. A row without positives is left out of the mean. w = 1 unless an
    option below changes it; no gradient flows through w.
    """

    temperature: float = Field(0.07, ge=1e-3, description="τ; note 000 used 0.5")
    queue: int = Field(
        0,
        ge=0,
        le=2**20,
        description="number of past features of the client that also repel images of other classes",
    )
    bank: Literal["none", "others", "all"] = Field(
        "none",
        description="public features that also repel an image: those of other classes, or all",
    )
    hardness: float = Field(
        0.0,
        ge=0,
        description="β: the weights of negatives are ∝ exp(β·similarity), with mean 1 (2010.04592)",
    )
    synthetic: int = Field(
        0,
        ge=0,
        le=1024,
        description="number of synthetic negatives per image: means of its hardest negatives "
        "(2010.01028)",
    )
    balanced: bool = Field(
        False,
        description="every class has the same weight, as positive and as negative (2207.09052)",
    )

    def __call__(self, batch: Batch) -> Tensor:
        z, y = batch.directions, batch.labels
        itself = torch.eye(len(z), dtype=torch.bool, device=z.device)
        positive = (y[:, None] == y[None, :]) & ~itself
        similarity = (z @ z.T / self.temperature).masked_fill(itself, -torch.inf)
        denominator = self._denominator(z, y, similarity, self._outside(batch))
        # The diagonal is −inf: it must be replaced, not multiplied by zero.
        pulled = (similarity - denominator[:, None]).masked_fill(~positive, 0).sum(dim=1)
        count = positive.sum(dim=1)
        return self._mean(-pulled / count.clamp(min=1), y, count > 0)

    def queue_size(self) -> int:
        return self.queue

    def uses_bank(self) -> bool:
        return self.bank != "none"

    def _outside(self, batch: Batch) -> list[Rows]:
        """The rows outside the batch that repel: the latest rows of the queue, and the bank."""
        found = []
        if self.queue and batch.queue is not None:
            past = batch.queue
            found.append(Rows(past.features[-self.queue :], past.labels[-self.queue :]))
        if self.bank != "none":
            if batch.bank is None:
                raise AccordError("the term 'contrast' needs a bank in the briefing.")
            bank = batch.bank
            found.append(Rows(bank.features, bank.labels, own_class=self.bank == "all"))
        return [rows for rows in found if len(rows)]

    def _denominator(self, z: Tensor, y: Tensor, similarity: Tensor, sources: list[Rows]) -> Tensor:
        """log Σ_a w_ia exp(z_i·z_a/τ)."""
        negative = y[:, None] != y[None, :]
        own, other = self._class_bias(y, sources)
        logits = similarity + torch.where(negative, other[y][None, :], own[y][None, :])
        shift = self._mean_log_weight(z, y, sources)
        if self.hardness:
            # similarity·τ is the cosine. No gradient flows through the weights.
            log_weight = self.hardness * self.temperature * similarity.detach() - shift[:, None]
            logits = torch.where(negative, logits + log_weight, logits)
        parts = [logits.logsumexp(dim=1)]
        pull = Pull(self.temperature, self.hardness, bias=other)
        parts += [outside(z, y, rows, pull) - shift for rows in sources]
        if self.synthetic:
            parts.append(self._made_up(z, y, sources) - shift)
        return torch.stack(parts).logsumexp(dim=0) if len(parts) > 1 else parts[0]

    def _class_bias(self, y: Tensor, sources: list[Rows]) -> tuple[Tensor, Tensor]:
        """The log weight of a row by its class, where it attracts and where it repels.

        With `balanced`, the weights of each class sum to the mean number of rows per class. Rows
        from outside the batch only repel.
        """
        labels = torch.cat([y, *(rows.labels for rows in sources)])
        meeting = torch.cat([y, *(rows.labels for rows in sources if rows.own_class)])
        size = int(labels.max()) + 1
        own, all_of_it = (torch.bincount(r, minlength=size).float() for r in (meeting, labels))
        if not self.balanced:
            return torch.zeros_like(own), torch.zeros_like(own)
        mean = all_of_it[all_of_it > 0].mean()
        return (mean / own.clamp(min=1)).log(), (mean / all_of_it.clamp(min=1)).log()

    def _mean_log_weight(self, z: Tensor, y: Tensor, sources: list[Rows]) -> Tensor:
        """log of the mean of exp(β·cosine) over an image's negatives; 0 without β or negatives."""
        if not self.hardness:
            return z.new_zeros(len(z))
        total, count = hardness_of(z.detach(), y, Rows(z.detach(), y), self.hardness)
        for rows in sources:
            more, others = hardness_of(z.detach(), y, rows, self.hardness)
            total, count = torch.logaddexp(total, more), count + others
        return torch.where(count > 0, total - count.clamp(min=1).log(), torch.zeros_like(total))

    def _made_up(self, z: Tensor, y: Tensor, sources: list[Rows]) -> Tensor:
        """log Σ over the synthetic negatives: normalised means of successive hardest negatives."""
        found = hardest(z, y, [Rows(z.detach(), y), *sources], self.synthetic + 1)
        missing = found.square().sum(dim=2) == 0
        made = F.normalize(found[:, :-1] + found[:, 1:], dim=2)
        cosine = (z[:, None, :] * made).sum(dim=2)
        logits = cosine / self.temperature + self.hardness * cosine.detach()
        return logits.masked_fill(missing[:, 1:], -torch.inf).logsumexp(dim=1)

    def _mean(self, each: Tensor, y: Tensor, counts: Tensor) -> Tensor:
        """The mean over the rows that count; with `balanced`, the mean of the class means."""
        if not self.balanced:
            return each.sum() / counts.sum().clamp(min=1)
        per_class = torch.bincount(y[counts], minlength=int(y.max()) + 1)
        classes = (per_class > 0).sum().clamp(min=1)
        return (each / per_class.clamp(min=1)[y]).sum() / classes
