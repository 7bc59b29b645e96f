"""Partition schemes, which distribute images to clients, one file each. The registry finds them."""

from accord.data.schemes.base import (
    EACH,
    Counted,
    Partitioned,
    Pool,
    Scheme,
    make_scheme,
    register,
    schemes,
)

__all__ = [
    "EACH",
    "Counted",
    "Partitioned",
    "Pool",
    "Scheme",
    "make_scheme",
    "register",
    "schemes",
]
