"""Weights learnt as uncertainties (Kendall et al. 2018; OursV10 of the notes, and its repair)."""

from __future__ import annotations

from torch import Tensor

from accord.balance.base import Step, Weigher, Weights, balances
from accord.balance.sigmas import SigmaBalance, SigmaWeigher


@balances.register("uncertainty")
class Uncertainty(SigmaBalance):
    """L = L_loc/(2σ_l²) + L_al/(2σ_a²) + ½ log σ_l² + ½ log σ_a², with σ learnt with the net.

    λ = σ_l²/σ_a² converges to L_loc/L_al: as L_al → 0 it grows without bound, with any optimiser.
    In addition, 1/(2σ_l²) reduces the net's learning rate while L_loc > ½. By default σ shares the
    net's learning rate, momentum and gradient clipping, as in note 001 (docs/notes.md), in
    which the accuracy was 12 points below that of a constant λ.
    The repaired recipe trains σ in its own parameter group with a smaller learning rate.
    """

    weighs_local = True

    def start(self, label_counts: Tensor) -> Weigher:
        return UncertaintyWeigher(self, label_counts)


class UncertaintyWeigher(SigmaWeigher):
    def weigh(self, step: Step) -> Weights:  # noqa: ARG002 - depends on σ alone
        local, align = ((-log).detach().exp() / 2 for log in (self.log_local, self.log_align))
        return Weights(align=align, local=local)
