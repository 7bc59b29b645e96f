"""Correlation alignment to the bank (Sun and Saenko, 2016, arXiv 1607.01719)."""

from __future__ import annotations

from torch import Tensor

from accord.core.errors import AccordError
from accord.objective.base import Batch, Term, terms
from accord.objective.reference import covariance


@terms.register("coral")
class CorrelationAlignment(Term):
    """CORAL(z, bank) = ‖C_z − C_b‖²_F / 4: the client's features vary together as the bank's do.

    The paper's ‖·‖²_F / (4d²) for features of length √d, as which its d² cancels. C_z is over the
    batch, C_b over the bank in the client's mix of classes.
    """

    def uses_bank(self) -> bool:
        return True

    def __call__(self, batch: Batch) -> Tensor:
        if batch.reference is None:
            raise AccordError("the term 'coral' needs a bank in the briefing.")
        weights = batch.reference.row_weights(batch.labels)
        gap = covariance(batch.directions, weights) - batch.reference.covariance
        return weights.sum() * gap.square().sum() / 4  # 0 for a batch without any of its classes
