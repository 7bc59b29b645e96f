"""Conversion of images to a given size and number of channels, with a remark for the user."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from PIL import Image

from accord.core.errors import AccordError
from accord.data.images import Bytes
from accord.data.raw import Part, Raw
from accord.data.room import refuse_without_room


def convert(raw: Raw, size: int | None, channels: int | None) -> tuple[Raw, tuple[str, ...]]:
    """`raw` with both parts in one shape, and a remark if images were converted.

    Without `size`, the sizes of train and test must already be equal. Without `channels`, both
    parts become RGB if one part has colour images.
    """
    if (size is not None and size < 1) or channels not in (None, 1, 3):
        raise AccordError(
            f"`data.image`: expected a size of 1 or more and 1 or 3 channels; found {size} and "
            f"{channels}."
        )
    parts = [raw.train] if raw.test is None else [raw.train, raw.test]
    if size is None:
        _check_sizes(parts)
    wanted = channels or max(part.images.shape[-1] for part in parts)
    done = [_to_shape(part, size, wanted) for part in parts]
    before, after = _found(parts), _text(*done[0].images.shape[1:])
    remarks = () if before == after else (f"images converted from {before} to {after}",)
    return replace(raw, train=done[0], test=done[1] if raw.test else None), remarks


def resized(picture: Image.Image, size: int) -> Image.Image:
    """`picture` resized to a square, bilinear with antialiasing. The aspect ratio is not kept."""
    if picture.size == (size, size):
        return picture
    return picture.resize((size, size), Image.Resampling.BILINEAR)


def per_channel(values: tuple[float, ...], channels: int) -> tuple[float, ...]:
    """A mean or std for images with `channels`: repeated for grey → RGB, averaged otherwise."""
    if len(values) == channels:
        return values
    return (sum(values) / len(values),) * channels


def _to_shape(part: Part, size: int | None, channels: int) -> Part:
    images = part.images
    if size is not None and images.shape[1:3] != (size, size):
        images = _resize(images, size)
    if images.shape[-1] < channels:
        images = np.repeat(images, channels, axis=-1)
    elif images.shape[-1] > channels:
        images = _grey(images)
    return replace(part, images=images)


def _resize(images: Bytes, size: int) -> Bytes:
    shape = (len(images), size, size, images.shape[-1])
    refuse_without_room(shape, 1, "the converted images")
    out = np.empty(shape, np.uint8)
    for row, image in enumerate(images):
        pixels = image[..., 0] if image.shape[-1] == 1 else image
        out[row] = np.asarray(resized(Image.fromarray(pixels), size)).reshape(out.shape[1:])
    return out


def _grey(images: Bytes) -> Bytes:
    """The luma of Pillow's `convert("L")` (ITU-R 601), with exactly the same bits."""
    out = np.empty((*images.shape[:-1], 1), np.uint8)
    weights = np.array([19595, 38470, 7471], np.uint32)
    for row, image in enumerate(images):  # one by one: 32-bit sums of all need 12 × the memory
        out[row, ..., 0] = (image @ weights + 0x8000) >> 16
    return out


def _check_sizes(parts: list[Part]) -> None:
    sizes = [part.images.shape[1:3] for part in parts]
    if len(set(sizes)) > 1:
        (h, w), (other_h, other_w) = sizes
        raise AccordError(
            f"expected images of one size; train is {h}×{w}, test is {other_h}×{other_w}. Set "
            "`data.image` to one size for all images."
        )


def _found(parts: list[Part]) -> str:
    """The shape before the conversion, such as "28×28×1", or "several shapes"."""
    sizes = {part.found for part in parts}
    channels = {part.images.shape[-1] for part in parts}
    size = sizes.pop()
    if size is None or sizes or len(channels) > 1:
        return "several shapes"
    return _text(*size, *channels)


def _text(height: int, width: int, channels: int) -> str:
    return f"{height}×{width}×{channels}"
