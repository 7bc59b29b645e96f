"""Measures recipes in turns on one thread, so that other programs disturb all of them equally."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

import torch


@contextmanager
def one_thread() -> Iterator[None]:
    """Uses one thread, as clients do."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def ratio(seconds: dict[str, list[float]], recipe: str, plain: str = "fafi") -> float:
    """The median over rounds of the ratio to the plain recipe in the same round."""
    pairs = zip(seconds[recipe], seconds[plain], strict=True)
    return median(one / other for one, other in pairs)
