"""Rules that look at each weight of the clients' nets alone, such as the coordinate-wise median.

The median and the trimmed mean need the values of all clients at once. A few weights at a time are
collected from all uploads, so that the memory does not grow with the number of clients; the
uploads are read again for the next weights.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from accord.fusion.average import Tensors, one_net
from accord.fusion.base import Merge, Scene, Uploads, Vote
from accord.fusion.outputs import OutputEnsemble
from accord.messages import NET, Upload, unprefixed

MOST = 2**23  # numbers of all clients that are in memory at once: 64 MB in float64

Summarise = Callable[[Tensor], Tensor]  # (K, M) → (M)


class CoordinateWise(Merge):
    """W[j] is a summary of W_1[j], …, W_K[j], for every weight and every buffer of BatchNorm."""

    @abstractmethod
    def summarise(self, values: Tensor) -> Tensor:
        """(K, M) → (M): the summary over the clients of each of M numbers."""

    def asked(self) -> Vote:
        return OutputEnsemble()

    def merge(self, scene: Scene) -> Iterator[Upload]:
        yield one_net("merged", by_coordinate(scene.uploads, self.summarise), scene)


def by_coordinate(uploads: Uploads, summarise: Summarise, most: int = MOST) -> Tensors:
    """The net whose numbers are the summaries; integers are rounded to the nearest."""
    first = unprefixed(NET, uploads.load(0).tensors)
    size = sum(tensor.numel() for tensor in first.values())
    step = max(1, most // len(uploads))
    found = []
    for start in range(0, size, step):
        rows = [
            _part(unprefixed(NET, uploads.load(index).tensors), list(first), start, start + step)
            for index in range(len(uploads))
        ]
        found.append(summarise(torch.stack(rows)))
    flat = torch.split(torch.cat(found), [tensor.numel() for tensor in first.values()])
    return {
        name: _like(tensor, values)
        for (name, tensor), values in zip(first.items(), flat, strict=True)
    }


def _part(net: Tensors, names: list[str], start: int, stop: int) -> Tensor:
    """The numbers start … stop − 1 of all tensors in this order, as float64."""
    found, place = [], 0
    for name in names:
        flat = net[name].flatten()
        found.append(flat[max(0, start - place) : max(0, stop - place)].double())
        place += len(flat)
    return torch.cat(found)


def _like(tensor: Tensor, values: Tensor) -> Tensor:
    rounded = values if tensor.is_floating_point() else values.round()
    return rounded.reshape(tensor.shape).to(tensor.dtype)
