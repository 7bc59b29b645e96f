"""Each client's images have noise of a strength of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from accord.core.randomness import numpy_generator
from accord.data.images import Bytes, Indices
from accord.data.shifts.base import Shift, shifts


@shifts.register("noise")
class Noise(Shift):
    """Gaussian noise with standard deviations from 0 to strength of the range, evenly spaced.

    Each image has its own noise, which never changes: it is drawn from (seed, client, image).
    """

    @property
    def values(self) -> tuple[float]:
        return (self.strength * self.holder.amount("noise"),)

    def apply(self, images: Bytes, rows: Indices) -> Bytes:
        holder = self.holder
        changed = np.empty_like(images)
        for place, row in enumerate(rows.tolist()):
            rng = numpy_generator(holder.seed, holder.index, "shift-noise", row)
            grain = rng.standard_normal(images.shape[1:], dtype=np.float32)
            changed[place] = with_grain(images[place], grain, *self.values)
        return changed


def with_grain(image: Bytes, grain: NDArray[np.float32], deviation: float) -> Bytes:
    """x + 255·deviation·grain, rounded and cut to 0…255."""
    return np.rint(image + np.float32(255 * deviation) * grain).clip(0, 255).astype(np.uint8)
