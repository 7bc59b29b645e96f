"""Maximum mean discrepancy to the bank (Gretton et al., 2012; for nets: 1502.02791)."""

from __future__ import annotations

from torch import Tensor
from torch.utils.checkpoint import checkpoint

from accord.core.errors import AccordError
from accord.objective.base import Batch, Term, terms
from accord.objective.reference import kernel


@terms.register("mmd")
class MaximumMeanDiscrepancy(Term):
    """MMD²(z, bank): a distance between the distributions of the client's and the bank's features.

    Σ_ij u_i u_j k(z_i, z_j) − 2 Σ_ib u_i w_b k(z_i, b) + Σ_ab w_a w_b k(a, b). The weights u are
    equal over the rows of the batch; w weights the bank by the client's class proportions. k is a
    mean of Gaussians of five widths around the mean squared distance in the bank. MMD² is 0 only
    if the two distributions are equal.
    """

    def uses_bank(self) -> bool:
        return True

    def __call__(self, batch: Batch) -> Tensor:
        if batch.reference is None:
            raise AccordError("the term 'mmd' needs a bank in the briefing.")
        reference, z = batch.reference, batch.directions
        u = reference.row_weights(batch.labels)
        found = u @ kernel(z, z, reference.spread) @ u + reference.self_similarity * u.sum()
        for b, w in reference.chunks():
            # The checkpoint recomputes the similarities in the backward pass: to keep those to a
            # large bank would need too much memory.
            across: Tensor = checkpoint(
                _across, z, b, u, w, reference.spread, use_reentrant=False, preserve_rng_state=False
            )
            found = found - 2 * across
        return found


def _across(z: Tensor, b: Tensor, u: Tensor, w: Tensor, spread: Tensor) -> Tensor:
    return u @ kernel(z, b, spread) @ w
