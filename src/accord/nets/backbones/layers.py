"""The two layers of every backbone: a convolution without bias, and its normalisation."""

from __future__ import annotations

from typing import Literal, get_args

from torch import nn

from accord.core.errors import AccordError, nearest

Norm = Literal["batch", "group"]


def norm_layer(norm: Norm, channels: int) -> nn.Module:
    """Batch norm, or group norm, which has no running statistics that a fusion must average."""
    if norm == "batch":
        return nn.BatchNorm2d(channels)
    if norm == "group":
        return nn.GroupNorm(group_count(channels), channels)
    known = get_args(Norm)
    raise AccordError(f"unknown norm {norm!r}{nearest(norm, known)} Known: {', '.join(known)}.")


def group_count(channels: int) -> int:
    """The largest number of groups, at most 32, that divides the channels into 8 or more per group.

    When an image has shrunk to one pixel, statistics of fewer than 8 values carry little
    information: a group of one value would always be 0, and a group of two would always be ±1.
    """
    fits = [n for n in range(1, 33) if channels % n == 0 and channels // n >= 8]
    return max(fits, default=1)


def conv_norm(
    inputs: int, outputs: int, kernel: int, norm: Norm, stride: int = 1, groups: int = 1
) -> tuple[nn.Conv2d, nn.Module]:
    """A convolution with padding, and a norm, whose shift takes the place of a bias."""
    conv = nn.Conv2d(
        inputs, outputs, kernel, stride, padding=kernel // 2, groups=groups, bias=False
    )
    return conv, norm_layer(norm, outputs)
