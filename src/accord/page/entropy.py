"""The label entropy of a client in bits: 0 for one class, log₂ C for equal shares of C classes."""

from __future__ import annotations

import math
from collections.abc import Sequence


def label_entropy(counts: Sequence[int]) -> float:
    total = sum(counts)
    shares = [count / total for count in counts if count > 0] if total else []
    return abs(-sum(share * math.log2(share) for share in shares))
