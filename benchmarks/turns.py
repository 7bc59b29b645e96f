"""Recipes measured in turns on one thread, so that what disturbs one disturbs the others."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """As clients train."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def ratio(seconds: dict[str, list[float]], recipe: str, plain: str = "fafi") -> float:
    """Median over rounds, each held against the plain one of its own round."""
    pairs = zip(seconds[recipe], seconds[plain], strict=True)
    return median(one / other for one, other in pairs)
