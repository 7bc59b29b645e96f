"""Crops against PyTorch's resizing; boxes against their laws and kornia's."""

from __future__ import annotations

import math

import pytest
import torch
from kornia.augmentation.random_generator import ResizedCropGenerator
from torch import Tensor
from torch.nn.functional import interpolate

from accord.data.crop import crop, draw_boxes
from core.cases import looped


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("flip", [False, True])
def test_a_crop_is_the_box_resized(flip: bool) -> None:
    images = torch.rand((6, 3, 12, 10), generator=generator())
    boxes = torch.tensor(
        [(0, 0, 12, 10), (3, 2, 7, 5), (11, 9, 1, 1), (0, 4, 12, 3), (5, 0, 2, 10), (1, 1, 10, 8)]
    )
    result = crop(images, boxes.float(), torch.full((6,), flip))
    for image, box, cropped in zip(images, boxes.tolist(), result, strict=True):
        top, left, height, width = box
        inside = image[None, :, top : top + height, left : left + width]
        expected = interpolate(inside, size=(12, 10), mode="bilinear", align_corners=False)[0]
        expected = expected.flip(2) if flip else expected
        torch.testing.assert_close(cropped, expected, rtol=0, atol=1e-5)


def test_flips_are_per_image() -> None:
    images = torch.rand((6, 3, 12, 10), generator=generator())
    whole = torch.tensor([0.0, 0.0, 12.0, 10.0]).expand(6, 4)
    flips = torch.tensor([True, False, True, False, False, True])
    result = crop(images, whole, flips)
    expected = torch.where(flips.view(-1, 1, 1, 1), images.flip(3), images)
    torch.testing.assert_close(result, expected, rtol=0, atol=1e-5)


def distance_from_uniform(values: Tensor) -> float:
    """Kolmogorov–Smirnov: the largest gap to the law of U(0, 1)."""
    n = len(values)
    return (values.sort().values - (torch.arange(n) + 0.5) / n).abs().max().item()


def test_area_ratio_and_position_follow_their_laws() -> None:
    n, size = 20_000, 2000  # many pixels, so that whole ones round little
    boxes = draw_boxes(n, size, size, (0.2, 1.0), (3 / 4, 4 / 3), generator())
    top, left, height, width = boxes.unbind(1)
    share = height * width / size**2
    gap = 1.63 / math.sqrt(n) + 1e-3  # the 1 % bound of the test, and the rounding
    assert distance_from_uniform((share - 0.2) / 0.8) < gap
    free = share < 0.74  # beyond 3/4, not every ratio fits
    log_ratio = (width / height).log()[free] / math.log(4 / 3)
    assert distance_from_uniform((log_ratio + 1) / 2) < gap / 0.8
    inside = share < 0.6
    assert distance_from_uniform((top / (size - height))[inside]) < gap / 0.7
    assert distance_from_uniform((left / (size - width))[inside]) < gap / 0.7


def test_boxes_are_those_of_kornia_where_all_ratios_fit() -> None:
    n, size = 4000, 500
    scale, ratio = (0.2, 0.7), (3 / 4, 4 / 3)
    top, left, height, width = draw_boxes(n, size, size, scale, ratio, generator()).unbind(1)
    with torch.random.fork_rng(devices=[]):  # kornia knows global random state only
        torch.manual_seed(0)
        theirs = ResizedCropGenerator((size, size), scale, ratio)((n, 3, size, size))["src"]
    their_left, their_top = theirs[:, 0].unbind(1)
    their_width, their_height = (theirs[:, 2] - theirs[:, 0] + 1).unbind(1)
    levels = torch.linspace(0.05, 0.95, 10)
    for ours, other, unit in [
        (height * width, their_height * their_width, size * size),
        (width / height, their_width / their_height, 1),
        (top, their_top, size),
        (left, their_left, size),
    ]:
        gap = (ours.quantile(levels) - other.quantile(levels)).abs().max() / unit
        assert gap < 0.03


@looped(("height", "width"), [(1, 1), (1, 40), (40, 3), (8, 8), (33, 20)])
def test_boxes_lie_inside_the_image(height: int, width: int) -> None:
    boxes = draw_boxes(2000, height, width, (0.05, 1.0), (1 / 2, 2.0), generator())
    top, left, tall, wide = boxes.unbind(1)
    assert torch.equal(boxes, boxes.round())
    assert min(tall.min(), wide.min()) >= 1
    assert min(top.min(), left.min()) >= 0
    assert (top + tall).max() <= height
    assert (left + wide).max() <= width
