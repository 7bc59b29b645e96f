"""Colour changes against kornia's."""

from __future__ import annotations

import math
from collections.abc import Callable

import kornia.color
import kornia.enhance
import torch
from torch import Tensor

from accord.data import colour
from core.cases import looped


def floats(count: int = 6, channels: int = 3) -> Tensor:
    """Random images in [0, 1] with the corner cases of colour: grey, black, white, pure, tied."""
    images = torch.rand((count, channels, 12, 10), generator=torch.Generator().manual_seed(8))
    if channels == 3:
        corners = [(0, 0, 0), (1, 1, 1), (0.3, 0.3, 0.3), (1, 0, 0), (0, 1, 0), (0, 0, 1)]
        corners += [(1, 1, 0), (0, 1, 1), (1, 0, 1), (0.7, 0.7, 0.2)]
        images[:, :, 0, :] = torch.tensor(corners).T
    return images


def hue_of_kornia(images: Tensor, turns: Tensor) -> Tensor:
    result: Tensor = kornia.enhance.adjust_hue(images, turns * 2 * math.pi)
    return result


COLOURS = [
    (colour.adjust_brightness, kornia.enhance.adjust_brightness_accumulative, 0.0, 2.0),
    (colour.adjust_contrast, kornia.enhance.adjust_contrast_with_mean_subtraction, 0.0, 2.0),
    (colour.adjust_saturation, kornia.enhance.adjust_saturation_with_gray_subtraction, 0.0, 2.0),
    (colour.rotate_hue, hue_of_kornia, -0.5, 0.5),
]


@looped(("ours", "theirs", "low", "high"), COLOURS)
def test_colours_are_those_of_kornia(
    ours: Callable[[Tensor, Tensor], None],
    theirs: Callable[[Tensor, Tensor], Tensor],
    low: float,
    high: float,
) -> None:
    images = floats()
    factors = torch.linspace(low, high, len(images))
    expected = theirs(images, factors)
    ours(images, factors)
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-5)


def test_grey_is_that_of_kornia() -> None:
    images = floats()
    expected = kornia.color.rgb_to_grayscale(images).expand(-1, 3, -1, -1)
    colour.to_grey(images)
    torch.testing.assert_close(images, expected, rtol=0, atol=1e-6)


@looped("turns", [-0.5, -0.4, 0.0, 0.25, 0.5])
def test_turning_the_hue_back_restores_the_image(turns: float) -> None:
    images = floats()
    turned = images.clone()
    colour.rotate_hue(turned, torch.full((len(images),), turns))
    assert (turns == 0) == torch.allclose(turned, images, atol=1e-5)
    colour.rotate_hue(turned, torch.full((len(images),), -turns))
    torch.testing.assert_close(turned, images, rtol=0, atol=1e-5)


def test_single_channels_have_brightness_and_contrast_only() -> None:
    images = floats(channels=1)
    before = images.clone()
    factors = torch.linspace(0.1, 0.4, len(images))
    for change in (colour.adjust_saturation, colour.rotate_hue):
        change(images, factors)
    colour.to_grey(images)
    assert torch.equal(images, before)
    colour.adjust_contrast(images, torch.zeros(len(images)))
    torch.testing.assert_close(images, before.mean(dim=(1, 2, 3), keepdim=True).expand_as(before))
