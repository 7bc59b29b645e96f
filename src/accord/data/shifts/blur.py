"""Each client's images are blurred by a width of its own."""

from __future__ import annotations

import numpy as np
from scipy import ndimage

from accord.data.images import Bytes, Indices
from accord.data.shifts.base import Shift, shifts


@shifts.register("blur")
class Blur(Shift):
    """Gaussian blur with standard deviations from 0 to strength pixels, evenly spaced."""

    @property
    def values(self) -> tuple[float]:
        return (self.strength * self.holder.amount("blur"),)

    def apply(self, images: Bytes, rows: Indices) -> Bytes:  # noqa: ARG002
        return blurred(images, *self.values)


def blurred(images: Bytes, pixels: float) -> Bytes:
    """Images (N, H, W, C), blurred by a Gaussian with standard deviation `pixels`."""
    width = (0, pixels, pixels, 0)
    smooth = ndimage.gaussian_filter(images, width, output=np.float32, mode="reflect")
    rounded: Bytes = np.rint(smooth).astype(np.uint8)
    return rounded
