"""Groups of equal values in an array."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.data.images import Indices


def groups(values: NDArray[Any]) -> list[Indices]:
    """The positions of every distinct value, in ascending order of the values."""
    order = np.argsort(values, kind="stable")
    starts = np.flatnonzero(values[order][1:] != values[order][:-1]) + 1
    return np.split(order, starts)
