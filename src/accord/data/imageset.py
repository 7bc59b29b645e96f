"""A subset of the images of a decoded part, such as a client's images or the test images."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from accord.data.images import Bytes, Indices, Labels


class LabelledImages(Protocol):
    """What a training needs of its images."""

    @property
    def labels(self) -> Labels: ...
    def __len__(self) -> int: ...
    def batch(self, positions: Tensor) -> Tensor: ...
    def label_counts(self, classes: int) -> Tensor: ...


@dataclass(frozen=True)
class ImageSet:
    """The rows `rows` of `images`, with one label each.

    `images` is usually a memory map that all processes share. Only the rows of a batch are copied.
    """

    images: Bytes
    rows: Indices
    labels: Labels

    def __len__(self) -> int:
        return len(self.rows)

    def batch(self, positions: Tensor) -> Tensor:
        """The uint8 images (B, H, W, C) at `positions` of this set."""
        taken = self.images[self.rows[positions.numpy()]]
        return torch.from_numpy(np.ascontiguousarray(taken))

    def label_counts(self, classes: int) -> Tensor:
        return torch.from_numpy(np.bincount(self.labels, minlength=classes))

    def take(self, positions: Indices) -> ImageSet:
        return ImageSet(self.images, self.rows[positions], self.labels[positions])

    def rotated(self) -> ImageSet:
        """Copies of its images, rotated by 90°."""
        turned = np.rot90(self.images[self.rows], axes=(1, 2))
        return ImageSet(turned, np.arange(len(self)), self.labels)

    def slice(self, start: int, stop: int, step: int = 1) -> ImageSet:
        return ImageSet(self.images, self.rows[start:stop:step], self.labels[start:stop:step])


@dataclass(frozen=True)
class Joined:
    """The images of two sets, one after the other; only the rows of a batch are copied."""

    first: ImageSet
    second: ImageSet

    @cached_property
    def labels(self) -> Labels:
        return np.concatenate([self.first.labels, self.second.labels])

    def __len__(self) -> int:
        return len(self.first) + len(self.second)

    def batch(self, positions: Tensor) -> Tensor:
        """The uint8 images (B, H, W, C) at `positions`, in their order."""
        later = positions >= len(self.first)
        found = torch.empty((len(positions), *self.first.images.shape[1:]), dtype=torch.uint8)
        found[~later] = self.first.batch(positions[~later])
        found[later] = self.second.batch(positions[later] - len(self.first))
        return found

    def label_counts(self, classes: int) -> Tensor:
        return self.first.label_counts(classes) + self.second.label_counts(classes)
