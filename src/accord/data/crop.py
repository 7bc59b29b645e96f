"""Random resized crops: a box is drawn for each image and resampled bilinearly to full size."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import grid_sample


def draw_boxes(
    count: int,
    height: int,
    width: int,
    scale: tuple[float, float],
    ratio: tuple[float, float],
    generator: torch.Generator,
) -> Tensor:
    """`count` boxes inside the image, in whole pixels: (count, 4) of top, left, height, width.

    The share a of the image's area is uniform in `scale`, the ratio r = w/h is log-uniform in
    `ratio`, and the position is uniform. If a box does not fit into the image, torchvision draws
    again. Here r is clamped to a·W/H ≤ r ≤ W/(a·H), which keeps the distribution of the area exact.
    """
    area, log_ratio, row, column = torch.rand((4, count), generator=generator)
    area = scale[0] + area * (scale[1] - scale[0])
    low, high = math.log(ratio[0]), math.log(ratio[1])
    fitting = (low + log_ratio * (high - low)).exp()
    fitting = fitting.clamp(area * width / height, width / (area * height))
    pixels = area * (height * width)
    heights = (pixels / fitting).sqrt().round().clamp(1, height)
    widths = (pixels * fitting).sqrt().round().clamp(1, width)
    tops = (row * (height - heights + 1)).floor()
    lefts = (column * (width - widths + 1)).floor()
    return torch.stack([tops, lefts, heights, widths], dim=1)


def crop(images: Tensor, boxes: Tensor, flips: Tensor) -> Tensor:
    """Each image's box at full size, mirrored if `flips` is set; images are (N, C, H, W).

    Pixel j of W is interpolated at left + (j + ½)·w/W − ½ between two neighbours (half-pixel
    centres, that is align_corners=False), and never from outside the box.
    """
    height, width = images.shape[2:]
    tops, lefts, heights, widths = boxes.unsqueeze(2).unbind(1)
    rows = _positions(tops, heights, height)
    columns = _positions(lefts, widths, width)
    columns = torch.where(flips.unsqueeze(1), columns.flip(1), columns)
    # The coordinates of grid_sample go from −1 to 1, from edge to edge. Two batched matrix products
    # with each image's own weights would need the same time at 32 pixels and twice as much at 64;
    # see benchmarks/views.py.
    grid = images.new_empty((len(images), height, width, 2))
    grid[..., 0] = ((2 * columns + 1) / width - 1).unsqueeze(1)
    grid[..., 1] = ((2 * rows + 1) / height - 1).unsqueeze(2)
    return grid_sample(images, grid, mode="bilinear", padding_mode="border", align_corners=False)


def _positions(start: Tensor, length: Tensor, size: int) -> Tensor:
    """(N, size): the positions in source pixels of `size` samples in [start, start + length)."""
    centres = torch.arange(size, dtype=start.dtype, device=start.device) + 0.5
    return (start + centres * (length / size) - 0.5).clamp(start, start + length - 1)
