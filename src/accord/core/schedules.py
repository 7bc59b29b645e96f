"""Factors that start at 1 and fall with the progress p ∈ [0, 1] of all local training.

They do not start again after a checkpoint.
"""

from __future__ import annotations

import math
from typing import Literal

Fall = Literal["constant", "linear", "cosine"]


def falling(kind: Fall, progress: float) -> float:
    """s(p): 1, 1 − p, or ½(1 + cos πp)."""
    if kind == "cosine":
        return (1 + math.cos(math.pi * progress)) / 2
    return 1 - progress if kind == "linear" else 1.0
