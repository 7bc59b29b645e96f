"""The results of a reader: decoded parts, before they are converted to one shape and cached."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.data.images import Bytes, Labels

Tell = Callable[[str], None]
Columns = dict[str, NDArray[np.str_]]


@dataclass(frozen=True)
class Request:
    """The input of a reader: the dataset's name, the image size (None: unchanged), the classes."""

    name: str
    size: int | None
    classes: tuple[str, ...] | None
    tell: Tell


@dataclass(frozen=True)
class Part:
    """Train or test images of a reader.

    `found` is (height, width) before any resizing, or None if the images had several sizes.
    """

    images: Bytes
    labels: Labels
    found: tuple[int, int] | None
    columns: Columns = field(default_factory=dict)


@dataclass(frozen=True)
class Raw:
    """The parts of a dataset; `classes` is None if the source holds no class names.

    `remarks` are told whenever the dataset is used.
    """

    train: Part
    test: Part | None
    classes: tuple[str, ...] | None = None
    remarks: tuple[str, ...] = ()


@dataclass(frozen=True)
class Source:
    """A dataset's files and their reader. The search for a source opens none of its images.

    `salt` identifies content that is not in these files (the images inside scikit-learn).
    `folders` are folders whose names matter even if they hold no file, such as empty classes.
    """

    kind: str
    where: Path
    files: Callable[[], list[Path]]
    read: Callable[[Request], Raw]
    salt: str = ""
    folders: Callable[[], list[Path]] = list


class Progress:
    """Messages about the progress of decoding, at most every two seconds."""

    def __init__(self, what: str, total: int, tell: Tell) -> None:
        self._what, self._total, self._tell = what, total, tell
        self._start = self._last = time.monotonic()
        self._done = self._before = 0

    def begin(self, share: float) -> None:
        """Begins with a share that was done before, and that took no time now."""
        self._done = self._before = round(share * self._total)
        self._start = self._last = time.monotonic()

    def step(self, count: int = 1) -> None:
        self.reach((self._done + count) / self._total)

    def reach(self, share: float) -> None:
        self._done = round(share * self._total)
        now = time.monotonic()
        if now - self._last < 2 or self._done >= self._total:
            return
        self._last = now
        left = (now - self._start) * (self._total - self._done) / max(self._done - self._before, 1)
        share = 100 * self._done // self._total
        self._tell(f"{self._what} … {share} %, about {left:.0f} s left")


def as_images(array: NDArray[Any], where: object) -> Bytes:
    """`array` as uint8 (N, H, W, C) with one or three channels; grey images may be (N, H, W)."""
    if array.ndim == 3:
        array = array[..., None]
    if array.ndim != 4 or array.shape[-1] not in (1, 3) or 0 in array.shape[1:]:
        raise AccordError(
            f"{where}: expected images of shape (N, H, W), (N, H, W, 1) or (N, H, W, 3), channels "
            f"last; found {array.shape}. Reshape or transpose the array and save it again."
        )
    if len(array) == 0:
        raise AccordError(f"{where}: the file holds no images; expected at least one.")
    return _as_uint8(array, where)


def _as_uint8(array: NDArray[Any], where: object) -> Bytes:
    if array.dtype == np.uint8:
        return array
    if array.dtype.kind not in "iuf":
        raise AccordError(
            f"{where}: expected uint8 pixels; found {array.dtype}. Save the images as uint8."
        )
    low, high = array.min(), array.max()
    # The condition is written so that NaN also fails.
    if not (low >= 0 and high <= 255 and np.array_equal(array, np.floor(array))):
        raise AccordError(
            f"{where}: expected uint8 pixels; found {array.dtype} from {low:g} to {high:g}. "
            "Scale the images to whole numbers from 0 to 255 and save them as uint8."
        )
    return array.astype(np.uint8)


def as_labels(array: Any, count: int, where: object) -> Labels:
    """`array` as int64 (N,), one whole number for each of `count` images; (N, 1) is squeezed."""
    labels = np.asarray(array)
    if labels.ndim == 2 and labels.shape[1] == 1:
        labels = labels[:, 0]
    if labels.ndim != 1:
        raise AccordError(
            f"{where}: expected one label per image, shape (N,) or (N, 1); found {labels.shape}. "
            "If the labels are one-hot, save labels.argmax(1) instead."
        )
    if len(labels) != count:
        raise AccordError(
            f"{where}: found {count} images but {len(labels)} labels. The file is damaged, or the "
            "images and labels do not belong together. Download or save it again."
        )
    whole = labels.dtype.kind in "iub" or (
        labels.dtype.kind == "f" and np.array_equal(labels, np.floor(labels))
    )
    if not whole:
        raise AccordError(
            f"{where}: expected labels that are whole numbers from 0; found {labels.dtype}."
        )
    return labels.astype(np.int64)


def check_classes(classes: Sequence[str] | None, where: object) -> None:
    """Refuses class names that are not distinct."""
    twice = sorted(name for name, uses in Counter(classes or ()).items() if uses > 1)
    if classes is not None and (twice or not classes):
        found = f"{twice[0]!r} twice" if twice else "none"
        raise AccordError(
            f"{where}: expected class names that differ; found {found}. Correct the class names."
        )


def check_labels(labels: Labels, classes: Sequence[str] | None, where: object) -> None:
    """Refuses a label that is negative or belongs to no class. The error names file and row."""
    limit = len(classes) if classes is not None else np.iinfo(np.int64).max
    wrong = np.flatnonzero((labels < 0) | (labels >= limit))
    if len(wrong):
        row = int(wrong[0])
        allowed = f"0 to {limit - 1}" if classes is not None else "0 or more"
        raise AccordError(
            f"{where}: row {row} has label {int(labels[row])}; expected {allowed}. "
            "Correct the label or the class names."
        )
