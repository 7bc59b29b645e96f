"""Partition schemes, which distribute images to clients, one file each. The registry finds them."""

from accord.data.schemes.base import Counted, Pool, Scheme, make_scheme, register, schemes

__all__ = ["Counted", "Pool", "Scheme", "make_scheme", "register", "schemes"]
