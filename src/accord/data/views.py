"""Views: randomly augmented and normalised float images of a batch of uint8 images.

All random values are drawn separately for each image, on the CPU and from the given generator, so
that they are the same on every device.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.augmentations import NONE, Augmentation
from accord.data.colour import (
    adjust_brightness,
    adjust_contrast,
    adjust_saturation,
    rotate_hue,
    to_grey,
)
from accord.data.crop import crop, draw_boxes

# 32 images of CIFAR's size are processed at a time. They fit into the cache, and the allocator
# reuses the memory of temporaries, which are smaller than 400 kB each. New memory pages for every
# step would double the time.
VALUES_AT_ONCE = 32 * 32 * 32 * 3


def augment(
    images: Tensor,
    augmentation: Augmentation,
    views: int,
    generator: torch.Generator,
    mean: tuple[float, ...],
    std: tuple[float, ...],
) -> Tensor:
    """`views` random views of each uint8 image: (N, H, W, C) → (views·N, C, H, W), normalised.

    View 0 of all images is first, then view 1 of all images, and so on. The memory format is
    channels-last.
    """
    _check(images, mean, std)
    if augmentation == NONE:
        return normalise(images.repeat(views, 1, 1, 1), mean, std)
    count, height, width, _ = images.shape
    draws = _draw(augmentation, views * count, height, width, generator)
    draws = Draws(*(column.to(images.device) for column in draws))
    out = torch.empty((views * count, *images.shape[1:]), device=images.device)
    at_once = max(1, VALUES_AT_ONCE // max(1, images[:1].numel()))
    for start in range(0, count, at_once):
        part = images[start : start + at_once]
        planes = part.permute(0, 3, 1, 2).contiguous().float().div_(255)
        for first in range(start, views * count, count):
            rows = slice(first, first + len(part))
            drawn = Draws(*(column[rows] for column in draws))
            changed = _change(planes, augmentation, drawn)
            if augmentation.hole:
                cut_holes(changed, drawn.holes, round(augmentation.hole * height), mean)
            out[rows] = changed.permute(0, 2, 3, 1)
    return _standardise(out, mean, std)


def normalise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(x/255 − mean) / std without augmentation: (N, H, W, C) → (N, C, H, W), channels-last."""
    _check(images, mean, std)
    return _standardise(images.contiguous().float().div_(255), mean, std)


def renormalising(
    mean: Sequence[float], std: Sequence[float], own_mean: Sequence[float], own_std: Sequence[float]
) -> tuple[Tensor, Tensor]:
    """(scale, shift) from images normalised by mean and std to images normalised by the others."""
    old_mean, old_std, new_mean, new_std = map(torch.tensor, (mean, std, own_mean, own_std))
    return old_std / new_std, (old_mean - new_mean) / new_std


class Draws(NamedTuple):
    """The random values of each image, one row per image."""

    boxes: Tensor  # (N, 4): top, left, height, width of the crop
    flips: Tensor  # (N,) bool
    jitters: Tensor  # (N,) bool
    factors: Tensor  # (N, 4): brightness, contrast, saturation, hue
    greys: Tensor  # (N,) bool
    holes: Tensor  # (N, 2): the pixel at the centre of the hole


def _draw(
    augmentation: Augmentation, count: int, height: int, width: int, generator: torch.Generator
) -> Draws:
    a = augmentation
    boxes = draw_boxes(count, height, width, a.scale, a.ratio, generator)
    if a.shift:
        most = (a.shift * torch.tensor([height, width])).round()
        moves = torch.rand((count, 2), generator=generator) * (2 * most + 1)
        boxes[:, :2] += moves.floor() - most
    flip, jitter, grey = torch.rand((3, count), generator=generator)
    strengths = torch.tensor([a.brightness, a.contrast, a.saturation])
    low = torch.cat([(1 - strengths).clamp(min=0), torch.tensor([-a.hue])])
    high = torch.cat([1 + strengths, torch.tensor([a.hue])])
    factors = low + torch.rand((count, 4), generator=generator) * (high - low)
    holes = torch.zeros(count, 2)
    if a.hole:
        holes = (
            torch.rand((count, 2), generator=generator) * torch.tensor([height, width])
        ).floor()
    return Draws(boxes, flip < a.flip, jitter < a.jitter, factors, grey < a.grey, holes)


def _change(images: Tensor, augmentation: Augmentation, draws: Draws) -> Tensor:
    """Float (N, C, H, W) images, augmented by `draws`. Each step processes only its own images."""
    changed = crop(images, draws.boxes, draws.flips)
    picked = draws.jitters.nonzero().squeeze(1)
    jittered = changed.index_select(0, picked)
    _jitter(jittered, augmentation, draws.factors[picked])
    changed.index_copy_(0, picked, jittered)
    picked = draws.greys.nonzero().squeeze(1)
    greyed = changed.index_select(0, picked)
    to_grey(greyed)
    return changed.index_copy_(0, picked, greyed)


def _jitter(images: Tensor, augmentation: Augmentation, factors: Tensor) -> None:
    """Changes brightness, contrast, saturation and hue in place, each if its strength is not 0."""
    brightness, contrast, saturation, turns = factors.unbind(1)
    if augmentation.brightness > 0:
        adjust_brightness(images, brightness)
    if augmentation.contrast > 0:
        adjust_contrast(images, contrast)
    if augmentation.saturation > 0:
        adjust_saturation(images, saturation)
    if augmentation.hue > 0:
        rotate_hue(images, turns)


def cut_holes(images: Tensor, centres: Tensor, side: int, fill: Sequence[float]) -> None:
    """Fills a square of side × side pixels of each image with `fill`, one value per channel.

    Cutout (DeVries and Taylor, 2017, arXiv:1708.04552): the centre can be any pixel, so that a part
    of the square may lie outside of the image.
    """
    inside = []
    for pixels, centre in zip(images.shape[2:], centres.to(images.device).unbind(1), strict=True):
        distance = torch.arange(pixels, device=images.device) - centre[:, None]
        inside.append((distance >= -(side // 2)) & (distance < side - side // 2))
    hole = inside[0][:, None, :, None] & inside[1][:, None, None, :]
    values = images.new_tensor(fill)[:, None, None]
    images.copy_(torch.where(hole, values, images))


def _standardise(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> Tensor:
    """(x − mean) / std in place on contiguous (N, H, W, C), returned as a (N, C, H, W) view."""
    count, height, width, channels = images.shape
    rows = images.view(count, height, width * channels)  # long rows are faster than 3 channels
    rows.sub_(rows.new_tensor(mean).repeat(width)).div_(rows.new_tensor(std).repeat(width))
    return images.permute(0, 3, 1, 2)


def _check(images: Tensor, mean: tuple[float, ...], std: tuple[float, ...]) -> None:
    if images.dtype != torch.uint8 or images.ndim != 4:
        found = f"{images.dtype} {tuple(images.shape)}"
        raise AccordError(f"images must be uint8 (N, H, W, C), found {found}")
    channels = images.shape[3]
    if not len(mean) == len(std) == channels:
        raise AccordError(
            f"images of {channels} channels need as many means and standard deviations, "
            f"found {len(mean)} and {len(std)}"
        )
