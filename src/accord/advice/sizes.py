"""The sizes of uploads, and the largest number of fixed features that stays within the limits.

A size is never smaller than that of a real upload; the headers are estimated generously.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import torch
from torch import Tensor

from accord.advice.facts import Facts
from accord.closed_form.packing import Packing
from accord.closed_form.sums import expected_sums
from accord.messages import NetHeader
from accord.nets.maps.base import Around
from accord.nets.net import Net
from accord.nets.settings import NetConfig
from accord.study.recipe import ClosedFormRecipe
from accord.study.resolve import resolve

HEADER = 2_000  # bytes of an upload's header without the telemetry of epochs
TENSOR = 150  # bytes that describe one tensor
EVENT = 1_000  # bytes of telemetry for each epoch of a net
SMALL, LARGE = 800, 3_200  # features of closed-form-small and closed-form
LANDMARKS = 4_700  # features of closed-form-public and closed-form-teacher


def sums_bytes(facts: Facts, width: int, packing: Packing) -> int:
    """The bytes of one upload of a closed form with `width` features."""
    return HEADER + _bytes(expected_sums(len(facts.classes), width, packing))


def net_bytes(facts: Facts, backbone: str, epochs: int) -> int:
    """The bytes of one upload of a net that was trained for `epochs` epochs."""
    return HEADER + EVENT * epochs + _net(backbone, facts.channels, len(facts.classes))


@cache
def _net(backbone: str, channels: int, classes: int) -> int:
    """The bytes of a net and of the statistics that a client measures with it."""
    net = Net(NetHeader(backbone=backbone, norm="batch", head="linear"), channels, classes)
    width = net.encoder.width
    statistics = 4 * (3 * width + classes * width + 4 * classes) + 8 * classes
    return _bytes(net.state_dict()) + statistics


def map_width(facts: Facts, recipe: str, backbone: str) -> int:
    """The number of features of a recipe that stands on nets with this `backbone`."""
    found = resolve(recipe, Path())
    if not isinstance(found, ClosedFormRecipe):
        raise TypeError(f"{recipe} has no map")
    around = Around(NetConfig(backbone=backbone), facts.side)
    with torch.device("meta"):
        return found.map.settled(around, flips=False).width(facts.channels)


def _bytes(tensors: dict[str, Tensor]) -> int:
    return sum(TENSOR + tensor.numel() * tensor.element_size() for tensor in tensors.values())


def allowed(facts: Facts, size: int) -> bool:
    """Whether a client may upload `size` bytes in all."""
    return facts.megabytes is None or size <= facts.megabytes * 1e6


def most_features(facts: Facts, wanted: int, packing: Packing) -> int:
    """The largest number of features, at most `wanted`, whose sums stay within the limits.

    With `private`, no client may hold fewer images than there are features.
    """
    low, high = 0, min(wanted, facts.smallest) if facts.private else wanted
    while low < high:
        middle = (low + high + 1) // 2
        if allowed(facts, sums_bytes(facts, middle, packing)):
            low = middle
        else:
            high = middle - 1
    return low
