"""Decoding of image files (PNG, JPEG, WebP, …) into one uint8 array."""

from __future__ import annotations

import io
import struct
import warnings
import zlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import numpy as np
from PIL import Image, ImageOps

from accord.core.errors import AccordError
from accord.core.reading import open_plain
from accord.data.convert import resized
from accord.data.images import Bytes
from accord.data.raw import Progress, Request
from accord.data.room import refuse_without_room

# The usual formats of photographs and scans. Other formats of Pillow can start programs or are
# vector graphics.
_FORMATS = ("PNG", "JPEG", "WEBP", "BMP", "GIF", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".webp", ".bmp", ".gif", ".tif", ".tiff", ".pgm", ".ppm")

MOST_PIXELS = 100_000_000  # of one image; the cameras of today make about 60 million
MOST_FILE = 2**30  # bytes of one image file
PEAK = (-1, -1)  # the key of a 16-bit image's brightest value; no file can hold such a key

# The errors that Pillow raises for damaged bytes, depending on the format.
_DAMAGE = (
    OSError,
    SyntaxError,
    ValueError,
    EOFError,
    struct.error,
    zlib.error,
    Image.DecompressionBombError,
    MemoryError,
    OverflowError,
    KeyError,
    IndexError,
    TypeError,
    AttributeError,
    RecursionError,
)


def decode_all(
    encoded: Iterable[tuple[str, bytes]], count: int, what: str, request: Request
) -> tuple[Bytes, tuple[int, int] | None]:
    """All images as (N, H, W, C), and their original (height, width), None for several sizes.

    `encoded` yields the name of each image for error messages, and its bytes. If all images are
    grey, they have one channel; otherwise all become RGB.
    """
    progress = Progress(f"decoding {request.name} {what}", count, request.tell)
    images: Bytes | None = None
    found: tuple[int, int] | None = None
    first = ""
    several = False
    peak = -1
    for row, (where, data) in enumerate(encoded):
        picture = decode(data, where)
        height_width = (picture.height, picture.width)
        peak = max(peak, picture.info.get(PEAK, -1))
        pixels = _pixels(picture, request.size)
        if images is None:
            refuse_without_room((count, *pixels.shape), 1, f"{request.name} {what}")
            images = np.empty((count, *pixels.shape), np.uint8)
            found, first = height_width, where
        if height_width != found:
            several = True
            if request.size is None:
                raise _sizes_differ(first, found, where, height_width)
        if pixels.shape[-1] > images.shape[-1]:
            refuse_without_room((*images.shape[:-1], 3), 1, f"{request.name} {what}")
            images = np.repeat(images, 3, axis=-1)
        images[row] = pixels  # a grey image fills all three channels
        progress.step()
    if images is None:
        raise AccordError(f"{request.name} {what} holds no images; expected at least one.")
    refuse_dark(peak, f"{request.name} {what}")
    return images, None if several else found


def refuse_dark(peak: int, what: str) -> None:
    """Refuses 16-bit images that use little of their range; `peak` ≥ 0 is the brightest value."""
    if 0 <= peak < 2**14:
        raise AccordError(
            f"{what}: 16-bit images whose brightest pixel is {peak:,} of 65,535 would become "
            "nearly black. First scale them to the full range, or to 8 bits."
        )


def decode(data: bytes, where: str) -> Image.Image:
    """One image in mode L (grey) or RGB, rotated as its EXIF data say.

    Transparent pixels become white. 16-bit grey keeps its high byte, as Pillow does for 16-bit
    colour. An animation gives its first frame.
    """
    try:
        picture = _opened(io.BytesIO(data))
        _refuse_huge(picture, where)
        with _silent():
            picture.load()
            return _eight_bit(ImageOps.exif_transpose(picture), where)
    except Image.DecompressionBombError:  # Pillow looks at the header before we can
        raise AccordError(
            f"{where}: expected an image of at most {MOST_PIXELS // 10**6} megapixels; it has "
            "more. Make it smaller, or remove it."
        ) from None
    except _DAMAGE as error:
        raise AccordError(
            f"{where}: expected an image ({', '.join(_FORMATS)}); it could not be decoded "
            f"({type(error).__name__}). Replace or remove it."
        ) from None


def size_of(path: Path) -> tuple[int, int] | None:
    """(height, width) of an image file from its header alone; None if it cannot be decoded."""
    try:
        with open_plain(path) as file, _opened(file) as picture:
            return picture.height, picture.width
    except (AccordError, *_DAMAGE):
        return None


def _opened(file: IO[bytes]) -> Image.Image:
    """The image in a file. Only its header is read; the limit of Pillow is replaced by ours."""
    with _silent():
        return Image.open(file, formats=_FORMATS)


@contextmanager
def _silent() -> Iterator[None]:
    """Hides warnings of Pillow about large images and odd metadata."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _refuse_huge(picture: Image.Image, where: str) -> None:
    """Refuses an image with more pixels than a photograph has, before it is decoded."""
    if picture.height * picture.width > MOST_PIXELS:
        raise AccordError(
            f"{where}: expected an image of at most {MOST_PIXELS // 10**6} megapixels; found "
            f"{picture.height:,}×{picture.width:,}. Make it smaller, or remove it."
        )


def _eight_bit(picture: Image.Image, where: str) -> Image.Image:
    mode = picture.mode
    if mode in ("L", "RGB"):
        return picture
    if mode == "1":
        return picture.convert("L")
    if mode in ("LA", "La"):
        return _on_white(picture).convert("L")
    if mode == "I" or mode.startswith("I;16"):
        values = np.asarray(picture)
        if values.min() < 0 or values.max() > 65535:
            raise AccordError(
                f"{where}: expected 8 or 16 bits per pixel; found 32. Save it as PNG."
            )
        eight = Image.fromarray((values >> 8).astype(np.uint8))
        eight.info[PEAK] = int(values.max())
        return eight
    if mode == "F":
        raise AccordError(f"{where}: expected whole-number pixels; found floats. Save it as PNG.")
    if mode in ("RGBA", "RGBa", "PA") or "transparency" in picture.info:
        picture = _on_white(picture)
    return picture.convert("RGB")


def _on_white(picture: Image.Image) -> Image.Image:
    picture = picture.convert("RGBA")
    return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture)


def _pixels(picture: Image.Image, size: int | None) -> Bytes:
    pixels: Bytes = np.asarray(picture if size is None else resized(picture, size))
    return pixels[..., None] if pixels.ndim == 2 else pixels


def _sizes_differ(
    first: str, found: tuple[int, int] | None, where: str, other: tuple[int, int]
) -> AccordError:
    assert found is not None
    return AccordError(
        f"expected images of one size; {first} is {found[0]}×{found[1]}, {where} is "
        f"{other[0]}×{other[1]}. Set `data.image` to one size for all images."
    )
