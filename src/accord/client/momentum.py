"""The momentum of an optimiser's step."""

from __future__ import annotations

from torch import Tensor


def gathered(buffers: dict[int, Tensor], place: int, gradient: Tensor, momentum: float) -> Tensor:
    """v ← m·v + g in the buffer of the parameter at `place`; its first gradient is the first v."""
    if place in buffers:
        buffers[place].mul_(momentum).add_(gradient)
    else:
        buffers[place] = gradient.clone()
    return buffers[place]
