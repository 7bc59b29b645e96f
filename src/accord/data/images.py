"""Images in memory: uint8, channels last, with labels and further columns of the source."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]
Indices = NDArray[np.int64]
SITE = "site"  # the column with the site of each image, if the files are one folder per site


@dataclass(frozen=True)
class Images:
    """One part of a dataset. `images` is (N, H, W, C) and may be a read-only memory map."""

    images: Bytes
    labels: Labels
    columns: dict[str, NDArray[np.str_]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.labels)


@dataclass(frozen=True)
class Dataset:
    """A decoded dataset: its parts, its class names, its normalisation and augmentation.

    `mean` and `std` (per channel, of images scaled to 0–1) are part of the briefing and are used
    for train and test. They are constants of the dataset and are never computed from clients.
    `augment` is the name of the default augmentation set (no flips for digits). `folder` is the
    cache entry, which worker processes map into memory. `remarks` tell the user what was converted.
    """

    name: str
    classes: tuple[str, ...]
    train: Images
    test: Images | None
    mean: tuple[float, ...]
    std: tuple[float, ...]
    augment: str
    folder: Path
    remarks: tuple[str, ...] = ()
