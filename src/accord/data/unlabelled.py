"""Image files without labels, converted to the input format of a net."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from accord.core.errors import AccordError
from accord.core.reading import read_plain
from accord.data.decode import MOST_FILE, PEAK, SUFFIXES, decode, refuse_dark
from accord.data.images import Bytes
from accord.data.imageset import ImageSet
from accord.data.listing import files_below


class Shape(Protocol):
    """The size and channels of a net's input, as in the headers of briefings and models."""

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def channels(self) -> int: ...


def image_files(paths: Sequence[Path]) -> list[Path]:
    """The files in `paths`, and for each folder all images in and below it, sorted by name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = sorted(file for file in files_below(path, odd=True) if _is_image(file))
            if not inside:
                raise AccordError(f"{path}: expected images ({', '.join(SUFFIXES)}); found none.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            there = "something else" if path.exists() else "nothing"
            raise AccordError(f"{path}: expected an image or a folder of images; found {there}.")
    return found


def _is_image(path: Path) -> bool:
    # macOS writes a file "._name" with metadata beside a file on other disks; it is not an image.
    return path.suffix.lower() in SUFFIXES and not path.name.startswith("._")


def picture(file: Path) -> Image.Image:
    """The image in a file. A file that is not an image raises AccordError."""
    return decode(read_plain(file, MOST_FILE), str(file))


def read_images(files: Sequence[Path], shape: Shape) -> ImageSet:
    """The images in `files`, converted to `shape`. Every label is 0, because there are none."""
    pictures = [picture(file) for file in files]
    refuse_dark(max(one.info.get(PEAK, -1) for one in pictures), str(files[0].parent))
    return as_images(pictures, shape)


def as_images(pictures: Sequence[Image.Image], shape: Shape) -> ImageSet:
    pixels = np.stack([_pixels(one, shape) for one in pictures])
    return ImageSet(pixels, np.arange(len(pictures)), np.zeros(len(pictures), dtype=np.int64))


def _pixels(found: Image.Image, shape: Shape) -> Bytes:
    """The image as (H, W, C) in the given shape."""
    found = found.convert("L" if shape.channels == 1 else "RGB")
    if found.size != (shape.width, shape.height):
        found = found.resize((shape.width, shape.height), Image.Resampling.BILINEAR)
    pixels: Bytes = np.asarray(found)
    return pixels.reshape(shape.height, shape.width, shape.channels)
