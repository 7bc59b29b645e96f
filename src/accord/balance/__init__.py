"""How the local loss and the alignment loss are weighed: one file per rule."""

from accord.balance.base import Balance, Readings, Setting, Weigher, balances

__all__ = ["Balance", "Readings", "Setting", "Weigher", "balances"]
