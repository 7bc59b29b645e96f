"""Weights learnt as uncertainties (Kendall et al. 2018; OursV10 of the notes, and its repair)."""

from __future__ import annotations

from torch import Tensor

from accord.balance.base import Step, Weigher, Weights, balances
from accord.balance.sigmas import SigmaBalance, SigmaWeigher


@balances.register("uncertainty")
class Uncertainty(SigmaBalance):
    """L = L_loc/(2σ_l²) + L_al/(2σ_a²) + ½ log σ_l² + ½ log σ_a², σ learnt with the net.

    λ = σ_l²/σ_a² settles at L_loc/L_al: as L_al → 0 it grows without bound, whatever the optimiser.
    And 1/(2σ_l²) shrinks the net's learning rate while L_loc > ½. As it failed in note 001, σ
    shares the net's lr, momentum and gradient clip; the repair gives it a slow group of its own.
    """

    weighs_local = True

    def start(self, label_counts: Tensor) -> Weigher:
        return UncertaintyWeigher(self, label_counts)


class UncertaintyWeigher(SigmaWeigher):
    def weigh(self, step: Step) -> Weights:  # noqa: ARG002 - σ alone decides
        local, align = ((-log).detach().exp() / 2 for log in (self.log_local, self.log_align))
        return Weights(align=align, local=local)
