"""A study without images of its own: its clients hold all images, and the server only briefs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from accord.core.errors import AccordError
from accord.data.convert import per_channel
from accord.data.images import Dataset, Images
from accord.data.known import DATASETS
from accord.data.settings import ELSEWHERE, DataConfig
from accord.data.split import Split

COLOUR = 3  # channels, unless data.image.channels says otherwise


def no_images(data: DataConfig) -> Dataset:
    """A dataset with the classes and the image format of `data`, and no image."""
    classes, size = data.classes or (), data.image.size
    channels = data.image.channels or COLOUR
    if size is None or not classes or not all(isinstance(name, str) for name in classes):
        raise AccordError(
            "the server has no images, so it cannot know the classes and the size of the clients' "
            "images. Set data.classes to their names and data.image to their size, for example "
            "data.classes=[cat,dog] data.image=32; or name a dataset with data.name."
        )
    names = tuple(str(name) for name in classes)
    if len(set(names)) < len(names):
        raise AccordError(f"'data.classes': expected names that differ; found {list(names)}.")
    alike = DATASETS.get("folder")  # images of users have the same constants in every format
    return Dataset(
        name=ELSEWHERE,
        classes=names,
        train=Images(np.zeros((0, size, size, channels), np.uint8), np.zeros(0, np.int64)),
        test=None,
        mean=per_channel(alike.mean, channels),
        std=per_channel(alike.std, channels),
        augment=alike.augment,
        folder=Path(ELSEWHERE),
    )


def no_split(data: DataConfig) -> Split:
    """The split of `no_images`. Raises AccordError if a setting asks for images."""
    asked = {
        "public": data.public,
        "validation": data.validation,
        "test_fraction": data.test_fraction,
        "train_limit": data.train_limit,
        "test_limit": data.test_limit,
        "test_per_client": data.test_per_client,
    }
    for key, value in asked.items():
        if value:
            raise AccordError(
                f"'data.{key}': expected null, because the server has no images; found {value}. "
                "Name the server's images with data.name and data.path, or remove the key."
            )
    none, names = np.zeros(0, np.int64), tuple(str(name) for name in data.classes or ())
    return Split(none, none, none, none, "train", names, np.arange(len(names)), none)
