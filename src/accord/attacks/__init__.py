"""What hostile clients do to their labels, their counts and their uploads, one file per attack."""

from accord.attacks.base import Attack, attacks

__all__ = ["Attack", "attacks"]
