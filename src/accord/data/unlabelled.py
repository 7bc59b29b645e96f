"""Image files that nobody has labelled, as a net expects them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from PIL import Image

from accord.data.decode import SUFFIXES, decode
from accord.data.images import Bytes
from accord.data.imageset import ImageSet
from accord.errors import AccordError


class Shape(Protocol):
    """What an image must be; headers of briefings and models tell."""

    @property
    def height(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def channels(self) -> int: ...


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are named, folders with all images in and below them, in order of name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [p for p in sorted(path.rglob("*")) if p.suffix.lower() in SUFFIXES]
            if not inside:
                raise AccordError(f"{path}: expected images ({', '.join(SUFFIXES)}); found none.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise AccordError(f"{path}: expected an image or a folder of images; found nothing.")
    return found


def read_images(files: Sequence[Path], shape: Shape) -> ImageSet:
    """The pictures in `files`, converted to `shape`; every label is 0, for there is none."""
    pixels = np.stack([_pixels(file, shape) for file in files])
    return ImageSet(pixels, np.arange(len(files)), np.zeros(len(files), dtype=np.int64))


def _pixels(file: Path, shape: Shape) -> Bytes:
    """(H, W, C), whatever the file holds."""
    picture = decode(file.read_bytes(), str(file)).convert("L" if shape.channels == 1 else "RGB")
    if picture.size != (shape.width, shape.height):
        picture = picture.resize((shape.width, shape.height), Image.Resampling.BILINEAR)
    pixels: Bytes = np.asarray(picture)
    return pixels.reshape(shape.height, shape.width, shape.channels)
