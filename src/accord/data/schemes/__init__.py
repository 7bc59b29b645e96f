"""Partition schemes: who gets which images. One file each; the registry finds them."""

from accord.data.schemes.base import Counted, Pool, Scheme, make_scheme, register, schemes

__all__ = ["Counted", "Pool", "Scheme", "make_scheme", "register", "schemes"]
