"""Classification by prototypes: cross-entropy terms of the images and of the prototypes."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.objective.base import Batch, Term, terms


@terms.register("cross-entropy")
class CrossEntropy(Term):
    """CE(logits, (1 − ε)y + ε/C): the usual classification loss; a prototype head gives z Pᵀ.

    With `adjusted`, ln(n_c + 1) is added to the logit of class c, where n_c is the number of images
    of class c that the client trains on. The logits then need not learn the label skew (logit
    adjustment, Menon et al., 2021, arXiv:2007.07314).
    """

    smoothing: float = Field(0.0, ge=0, lt=1, description="ε, the label smoothing")
    adjusted: bool = Field(False, description="add ln(n_c + 1) to the logits, against label skew")

    def __call__(self, batch: Batch) -> Tensor:
        logits = batch.logits
        if self.adjusted:
            logits = logits + (batch.label_counts + 1).to(logits.dtype).log()
        return F.cross_entropy(logits, batch.labels, label_smoothing=self.smoothing)


@terms.register("prototypes")
class PrototypeCrossEntropy(Term):
    """CE(zPᵀ/τ_p, y): classification of images by their similarity to prototypes (FAFI).

    At τ_p = 1 with a prototype head this equals `cross-entropy`. FAFI adds both, and so does the
    recipe `fafi`.
    """

    temperature: float = Field(1.0, gt=0, description="τ_p")

    def __call__(self, batch: Batch) -> Tensor:
        similarity = batch.directions @ batch.prototypes.T
        return F.cross_entropy(similarity / self.temperature, batch.labels)


@terms.register("separation")
class Separation(Term):
    """CE(PPᵀ/τ_p, I): pushes prototypes apart, so that each is most similar to itself (FAFI)."""

    temperature: float = Field(1.0, gt=0, description="τ_p")

    def __call__(self, batch: Batch) -> Tensor:
        P = batch.prototypes
        own = torch.arange(len(P), device=P.device)
        return F.cross_entropy(P @ P.T / self.temperature, own)
