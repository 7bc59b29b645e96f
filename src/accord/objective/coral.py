"""Correlation alignment to the bank (Sun and Saenko, 2016, arXiv 1607.01719)."""

from __future__ import annotations

from torch import Tensor

from accord.core.errors import AccordError
from accord.objective.base import Batch, Term, terms
from accord.objective.reference import covariance


@terms.register("coral")
class CorrelationAlignment(Term):
    """CORAL(z, bank) = ‖C_z − C_b‖²_F / 4: covariances of the client's and the bank's features.

    This equals the paper's ‖·‖²_F / (4d²) for features of length √d, where d² cancels. C_z is the
    covariance of the batch; C_b is that of the bank, weighted by the client's class proportions.
    """

    def uses_bank(self) -> bool:
        return True

    def __call__(self, batch: Batch) -> Tensor:
        if batch.reference is None:
            raise AccordError("the term 'coral' needs a bank in the briefing.")
        weights = batch.reference.row_weights(batch.labels)
        gap = covariance(batch.directions, weights) - batch.reference.covariance
        return weights.sum() * gap.square().sum() / 4  # 0 if the batch has no class of the bank
