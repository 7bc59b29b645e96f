"""Metrics of a predictor's scores: accuracy, recall per class, calibration, loss."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from accord.core.short_tally import Figures, ShortTally

TOP = 5  # classes that count for the top-5 accuracy
ECE_BINS = 15  # equal-width bins over (0, 1], the number used by Guo et al. (2017)

Bin = tuple[int, float, float]  # number of images, mean confidence, accuracy


@dataclass(frozen=True)
class Metrics(Figures):
    """The figures of one set of images, with the confusions between classes.

    `confusion[t][p]` counts the images of class t that were predicted as class p. `top5` is the
    share of images whose class is among the five highest scores; None with fewer than 5 classes.
    `reliability` holds (count, mean confidence, accuracy) of the images of each of the 15 bins of
    confidence; zeros for an empty bin. ece = Σ_b count_b/N · |accuracy_b − confidence_b|. It is
    None for metrics that are means over several nets.
    """

    confusion: tuple[tuple[int, ...], ...]
    top5: float | None = None
    reliability: tuple[Bin, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    def accuracy_for(self, counts: Sequence[int]) -> float:
        """Σ_c p_c·recall_c: the accuracy on a set that holds `counts`[c] = n_c images of class c.

        Classes that were not measured are left out. The result is 0 if no class was measured.
        """
        hits = weight = 0.0
        for row, (count, truth) in enumerate(zip(counts, self.confusion, strict=True)):
            if sum(truth):
                hits += count * truth[row] / sum(truth)
                weight += count
        return hits / weight if weight else 0.0


@dataclass(frozen=True)
class Tally:
    """Sums over images from which the metrics are computed, so that blocks of images can be added.

    `confusion` (C, C) holds counts. `gaps` (15) sums correct − confidence over the images of each
    calibration bin ((b−1)/15, b/15]. `binned` and `right` (15) count the images of each bin, and
    the correct ones among them. `loss` sums −log p(truth). `top5` counts the images whose class is
    among the five highest scores.
    """

    confusion: Tensor
    gaps: Tensor
    binned: Tensor
    right: Tensor
    loss: float
    top5: int

    @classmethod
    def of(cls, scores: Tensor, labels: Tensor, classes: int) -> Tally:
        """The tally of `scores` (N, classes) against `labels` (N).

        The confidences are softmax(scores). The predicted class has the highest score; of equal
        scores, the first counts.
        """
        _check(scores, labels, classes)
        labels = labels.detach().to("cpu", torch.int64)
        log_p = scores.detach().to("cpu", torch.float64).log_softmax(dim=1)
        confidences, predicted = log_p.exp().max(dim=1).values, scores.cpu().argmax(dim=1)
        correct = (predicted == labels).double()
        confusion = torch.bincount(labels * classes + predicted, minlength=classes**2)
        bins = (confidences * ECE_BINS).ceil().long().clamp(1, ECE_BINS) - 1
        gaps = torch.zeros(ECE_BINS, dtype=torch.float64)
        return cls(
            confusion=confusion.reshape(classes, classes),
            gaps=gaps.index_add(0, bins, correct - confidences),
            binned=torch.bincount(bins, minlength=ECE_BINS),
            right=torch.bincount(bins[predicted == labels], minlength=ECE_BINS),
            loss=-log_p.gather(1, labels[:, None]).sum().item(),
            top5=int((_ranks(scores.detach().cpu(), labels) < TOP).sum()),
        )

    @classmethod
    def sum(cls, tallies: Iterable[Tally]) -> Tally:
        """The tally of all images of all `tallies`, added in the given order."""
        total, *rest = tallies
        for other in rest:
            total = cls(
                total.confusion + other.confusion,
                total.gaps + other.gaps,
                total.binned + other.binned,
                total.right + other.right,
                total.loss + other.loss,
                total.top5 + other.top5,
            )
        return total

    def short(self) -> ShortTally:
        """The same images, without the confusions between classes."""
        images = self.confusion.sum(dim=1)
        return ShortTally(images, self.confusion.diagonal(), self.gaps, self.loss)

    def metrics(self) -> Metrics:
        short = self.short()
        return Metrics(
            **asdict(short.figures()),
            confusion=tuple(tuple(row) for row in self.confusion.tolist()),
            top5=self.top5 / short.count if len(self.confusion) >= TOP else None,
            reliability=self._reliability(),
        )

    def _reliability(self) -> tuple[Bin, ...]:
        """Σ confidence of a bin is its number of correct images − its gap."""
        bins = zip(self.binned.tolist(), self.right.tolist(), self.gaps.tolist(), strict=True)
        return tuple(
            (n, (hits - gap) / n, hits / n) if n else (0, 0.0, 0.0) for n, hits, gap in bins
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "confusion": self.confusion.tolist(),
            "gaps": self.gaps.tolist(),
            "binned": self.binned.tolist(),
            "right": self.right.tolist(),
            "loss": self.loss,
            "top5": self.top5,
        }

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Tally:
        return cls(
            torch.tensor(values["confusion"]),
            torch.tensor(values["gaps"], dtype=torch.float64),
            torch.tensor(values["binned"]),
            torch.tensor(values["right"]),
            values["loss"],
            values["top5"],
        )


def measure(scores: Tensor, labels: Tensor, classes: int) -> Metrics:
    """The metrics of one set of images."""
    return Tally.of(scores, labels, classes).metrics()


def _ranks(scores: Tensor, labels: Tensor) -> Tensor:
    """The number of classes that are placed before the true one; of equal scores, the first counts.

    The rank is 0 exactly for the images that count as correct for `accuracy`.
    """
    own = scores.gather(1, labels[:, None])
    before = torch.arange(scores.shape[1]) < labels[:, None]
    return ((scores > own) | ((scores == own) & before)).sum(dim=1)


def _check(scores: Tensor, labels: Tensor, classes: int) -> None:
    """Checks shapes, ranges and that scores are finite. A failed check is a bug of the caller."""
    if scores.ndim != 2 or scores.shape[1] != classes or labels.shape != scores.shape[:1]:
        raise ValueError(
            f"expected scores (N, {classes}) and labels (N), "
            f"found {tuple(scores.shape)} and {tuple(labels.shape)}"
        )
    if len(labels) == 0:
        raise ValueError("expected at least one image to measure, found none")
    if labels.min() < 0 or labels.max() >= classes:
        found = f"{labels.min()}…{labels.max()}"
        raise ValueError(f"expected labels in 0…{classes - 1}, found labels in {found}")
    if not torch.isfinite(scores).all():
        rows = int((~torch.isfinite(scores)).any(dim=1).sum())
        raise ValueError(f"expected finite scores, found NaN or infinity for {rows} images")
