"""A short tally: hits per class, without the confusions between classes."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor


@dataclass(frozen=True)
class Figures:
    """The metrics of one set of images. Fractions lie between 0 and 1.

    `balanced_accuracy` is the mean recall over the classes that occur, and `worst_class` is the
    lowest recall. `ece` is the expected calibration error. `loss` is the mean −log p(truth) in
    nats.
    """

    accuracy: float
    balanced_accuracy: float
    worst_class: float
    ece: float
    loss: float


@dataclass(frozen=True)
class ShortTally:
    """Sums over images from which `Figures` are computed, so that sets of images can be added.

    `images` and `hits` (C) count the images of each class, and the correct ones among them. `gaps`
    (15) sums correct − confidence over the images of each calibration bin. `loss` sums
    −log p(truth).
    """

    images: Tensor
    hits: Tensor
    gaps: Tensor
    loss: float

    @classmethod
    def sum(cls, tallies: Iterable[ShortTally]) -> ShortTally:
        """The tally of all images of all `tallies`, added in the given order."""
        total, *rest = tallies
        for other in rest:
            total = cls(
                total.images + other.images,
                total.hits + other.hits,
                total.gaps + other.gaps,
                total.loss + other.loss,
            )
        return total

    @property
    def count(self) -> int:
        """The number of images."""
        return int(self.images.sum())

    def figures(self) -> Figures:
        """ece = Σ_b |B_b|/N · |accuracy(B_b) − confidence(B_b)|."""
        occurring = self.images > 0
        recall = self.hits[occurring] / self.images[occurring].double()
        return Figures(
            accuracy=self.hits.sum().item() / self.count,
            balanced_accuracy=recall.mean().item(),
            worst_class=recall.min().item(),
            ece=self.gaps.abs().sum().item() / self.count,
            loss=self.loss / self.count,
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "images": self.images.tolist(),
            "hits": self.hits.tolist(),
            "gaps": self.gaps.tolist(),
            "loss": self.loss,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> ShortTally:
        return cls(
            torch.tensor(values["images"]),
            torch.tensor(values["hits"]),
            torch.tensor(values["gaps"], dtype=torch.float64),
            values["loss"],
        )
