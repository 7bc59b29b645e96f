"""Images in memory: uint8, channels last, with labels and the columns that came along."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Bytes = NDArray[np.uint8]
Labels = NDArray[np.int64]
Indices = NDArray[np.int64]


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
    """A decoded dataset: its parts, its class names, and how its images are to be treated.

    `mean` and `std` (per channel, of images scaled to 0–1) travel in the briefing and serve train
    and test alike; they are constants of the dataset, never pooled from clients. `augment` names
    the default augmentation set (no flips for digits). `folder` is the cache entry that worker
    processes map instead of copying. `remarks` tell the user what was converted.
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
