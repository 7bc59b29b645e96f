"""Colour changes as torchvision defines them, in place on (N, C, H, W) images within [0, 1].

Every image has its own factor: `factors` is (N,). Results are clamped to [0, 1] after each change.
Saturation, hue and grey are defined for three channels only and do not change other images.
"""

from __future__ import annotations

import torch
from torch import Tensor

LUMA = (0.299, 0.587, 0.114)  # ITU-R 601, the weights of red, green and blue in grey
OWN_HUES = (0, 1 / 3, -1 / 3)  # hues of red, green and blue, in turns of the colour circle


def adjust_brightness(images: Tensor, factors: Tensor) -> None:
    """x ← f·x."""
    images.mul_(_per_image(factors)).clamp_(0, 1)


def adjust_contrast(images: Tensor, factors: Tensor) -> None:
    """x ← f·x + (1 − f)·m, where m is the mean of the grey image."""
    channel_means = images.mean(dim=(2, 3))
    if images.shape[1] == 3:  # the mean of the weighted sum is the weighted sum of the means
        means = channel_means @ channel_means.new_tensor(LUMA)
    else:
        means = channel_means.mean(dim=1)
    images.mul_(_per_image(factors)).add_(_per_image((1 - factors) * means)).clamp_(0, 1)


def adjust_saturation(images: Tensor, factors: Tensor) -> None:
    """x ← f·x + (1 − f)·grey(x)."""
    if images.shape[1] != 3:
        return
    grey = _grey(images).mul_(_per_image(1 - factors))
    images.mul_(_per_image(factors)).add_(grey).clamp_(0, 1)


def rotate_hue(images: Tensor, turns: Tensor) -> None:
    """Rotates the hue of HSV by `turns` of a full circle; saturation and value do not change.

    With the hue h in turns, value v = max(r, g, b) and chroma c = v − min(r, g, b), a channel whose
    own hue is h₀ becomes v − c·clamp(6d − 1, 0, 1), where d is the distance from h to h₀ along the
    circle: the channel has its full value up to 60° away and falls to the minimum at 120°.
    """
    if images.shape[1] != 3:
        return
    red, green, blue = images.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    least = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - least
    hue = _hue(red, green, blue, value, least, chroma).add_(turns.view(-1, 1, 1))
    hue.sub_(hue.round())  # back to [−½, ½]
    # There |h − h₀| < 1, so d = ½ − ||h − h₀| − ½|, and the formula above becomes
    # min − c + 6c·clamp(½ − d, 1/6, 1/3).
    away = (hue.unsqueeze(1) - hue.new_tensor(OWN_HUES).view(3, 1, 1)).abs_()
    fullness = away.sub_(0.5).abs_().clamp_(1 / 6, 1 / 3)
    floor = (least - chroma).unsqueeze(1)
    torch.addcmul(floor, chroma.unsqueeze(1), fullness, value=6, out=images)


def to_grey(images: Tensor) -> None:
    """x ← grey(x) in all three channels."""
    if images.shape[1] == 3:
        images.copy_(_grey(images))


def _hue(
    red: Tensor, green: Tensor, blue: Tensor, value: Tensor, least: Tensor, chroma: Tensor
) -> Tensor:
    """The hue in turns, within [−½, ½]; any finite number if a pixel has no colour.

    Let r', g', b' = (r, g, b − min)/c, of which one is 0 and one is 1. The distance from red is
    (1 + g' + b' − r')/6 in every sector (yellow 1/6, green 2/6, cyan 3/6), and it is positive on
    the side of green. This is the hue of HSV without its three cases, which would need more time
    than all other steps.
    """
    six_chroma = (chroma * 6).clamp_(min=torch.finfo(chroma.dtype).tiny)
    from_red = (green + blue).sub_(red).add_(value).sub_(least, alpha=2).div_(six_chroma)
    return from_red.copysign_(green - blue)


def _grey(images: Tensor) -> Tensor:
    red, green, blue = images.unsqueeze(2).unbind(1)
    return (red * LUMA[0]).add_(green, alpha=LUMA[1]).add_(blue, alpha=LUMA[2])


def _per_image(values: Tensor) -> Tensor:
    return values.view(-1, 1, 1, 1)
