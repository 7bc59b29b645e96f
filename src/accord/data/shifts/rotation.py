"""Each client's images are rotated by an angle of its own."""

from __future__ import annotations

from scipy import ndimage

from accord.data.images import Bytes, Indices
from accord.data.shifts.base import Shift, shifts


@shifts.register("rotation")
class Rotation(Shift):
    """Angles from −strength to +strength degrees, evenly spaced over the clients."""

    @property
    def values(self) -> tuple[float]:
        return (self.strength * self.holder.level("rotation"),)

    def apply(self, images: Bytes, rows: Indices) -> Bytes:  # noqa: ARG002
        return rotated(images, *self.values)


def rotated(images: Bytes, degrees: float) -> Bytes:
    """Images (N, H, W, C), rotated anticlockwise about their centre, of the same size.

    Pixels are interpolated bilinearly. Outside of an image its mirror image is seen: black corners
    would tell a net the angle.
    """
    turned: Bytes = ndimage.rotate(
        images, degrees, axes=(2, 1), reshape=False, order=1, mode="reflect"
    )
    return turned
