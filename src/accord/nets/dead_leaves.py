"""Synthetic images with the statistics of natural images: the dead leaves model.

An image is made of shapes ("leaves") that cover each other. Their sizes follow a power law. This
gives edges at every scale and spectra like those of photographs (Lee, Mumford and Huang, 2001). No
real images are needed, and one seed gives all clients the same images.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import numpy_generator

LEAVES = 60  # leaves per image
STEEP = 1.5  # exponent of the power law of sizes
LARGEST = 20.0


def leaf_pictures(count: int, side: int, channels: int, seed: int) -> Tensor:
    """(count, channels, side, side); every channel has mean 0 and standard deviation 1."""
    draws = numpy_generator(seed, "leaves")
    pictures = np.stack([_picture(side, draws) for _ in range(count)])
    x = torch.from_numpy(pictures).permute(0, 3, 1, 2)
    blurred = F.avg_pool2d(F.pad(x, (1, 1, 1, 1), mode="replicate"), 3, 1)
    x = (x + blurred) / 2  # photographs are slightly blurred
    x = x if channels == 3 else x.mean(dim=1, keepdim=True).expand(-1, channels, -1, -1)
    return (x - x.mean(dim=(0, 2, 3), keepdim=True)) / x.std(dim=(0, 2, 3), keepdim=True)


def _picture(
    side: int, draws: np.random.Generator
) -> np.ndarray[tuple[int, ...], np.dtype[np.float32]]:
    """An image (side, side, 3) with values from 0 to 1."""
    y, x = np.mgrid[:side, :side].astype(np.float32)
    picture = np.full((side, side, 3), draws.uniform(), dtype=np.float32)
    for _ in range(LEAVES):
        radius = min(2 * (draws.pareto(STEEP) + 1), LARGEST)
        cy, cx = draws.uniform(-5, side + 5, 2)
        angle, thin = draws.uniform(0, np.pi), draws.uniform(0.2, 1)
        dy, dx = y - cy, x - cx
        along = dx * np.cos(angle) + dy * np.sin(angle)
        across = dy * np.cos(angle) - dx * np.sin(angle)
        if draws.uniform() < 1 / 3:
            covered = along**2 + across**2 < radius**2
        else:
            covered = (np.abs(along) < radius) & (np.abs(across) < thin * radius)
        colour = draws.uniform() + draws.normal(0, 0.12, 3)
        shade = draws.normal(0, 0.004, 2)  # a gradient, like that of light from one side
        light = dx[covered] * shade[0] + dy[covered] * shade[1]
        picture[covered] = colour + light[:, None]
    return np.clip(picture, 0, 1)
