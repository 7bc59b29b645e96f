"""Each client's images have a contrast and a brightness of their own, in every channel."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from accord.data.images import Bytes, Indices
from accord.data.shifts.base import Shift, shifts

CHANNELS = 3


@shifts.register("colour")
class Colour(Shift):
    """Channel c of an image x in [0, 1] becomes ½ + 2^(s·u_c)·(x_c − ½) + s·v_c/2, cut to [0, 1].

    s is the strength; u_c and v_c are the client's levels. The channels differ, so that the images
    of a client have a tint. Images with one channel change in contrast and brightness alone.
    """

    @property
    def values(self) -> tuple[float, ...]:
        """The contrast of every channel, and then the brightness of every channel."""
        contrasts = [2 ** (self.strength * self._level("contrast", c)) for c in range(CHANNELS)]
        shades = [self.strength * self._level("brightness", c) / 2 for c in range(CHANNELS)]
        return (*contrasts, *shades)

    def _level(self, kind: str, channel: int) -> float:
        return self.holder.level(f"colour-{kind}-{channel}")

    def apply(self, images: Bytes, rows: Indices) -> Bytes:  # noqa: ARG002
        return recoloured(images, self.values[:CHANNELS], self.values[CHANNELS:])


def recoloured(images: Bytes, contrast: Sequence[float], brightness: Sequence[float]) -> Bytes:
    """Images (N, H, W, C) with each channel's contrast about mid-grey and brightness changed."""
    grey = np.arange(256) / 255
    changed = np.empty_like(images)
    for channel in range(images.shape[3]):
        # A channel has 256 values; the new ones are looked up in a table.
        new = 0.5 + contrast[channel] * (grey - 0.5) + brightness[channel]
        table = np.rint(255 * new.clip(0, 1)).astype(np.uint8)
        changed[..., channel] = table[images[..., channel]]
    return changed
