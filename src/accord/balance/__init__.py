"""Rules that weight the local loss and the alignment losses, one file per rule."""

from accord.balance.base import (
    Balance,
    Group,
    Readings,
    Step,
    Weigher,
    Weights,
    balances,
)
from accord.balance.mixture import Mixture

__all__ = ["Balance", "Group", "Mixture", "Readings", "Step", "Weigher", "Weights", "balances"]
