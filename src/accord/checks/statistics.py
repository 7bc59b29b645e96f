"""The statistics of a net on its client's images: cosines and moments that fit each other."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.checks.words import at_worst, refuse
from accord.client.statistics import sampled
from accord.messages import NET, Briefing, Upload
from accord.nets.backbones.base import build_encoder

ROUNDED = 1e-5  # relative error of sums of float32 numbers
COSINE = 1e-4  # absolute error of a mean of cosines
SPREAD = 2e-3  # absolute error of a standard deviation of cosines, the root of a small number


def check_statistics(upload: Upload, briefing: Briefing, where: str) -> None:
    header = briefing.header
    encoder = build_encoder(header.net.backbone, header.channels, header.net.norm)
    told = _Told(upload, never_negative=encoder.never_negative)
    _check_classes(told, where)
    _check_moments(told, where)
    _check_scores(told, where)
    _check_accuracy(upload, where)


class _Told:
    """The statistics of an upload in float64."""

    def __init__(self, upload: Upload, *, never_negative: bool) -> None:
        self.tensors = upload.tensors
        self.counts = upload.tensors["label_counts"].double()
        self.images = float(self.counts.sum())
        self.held = self.counts > 0
        self.never_negative = never_negative

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name].double()


def _check_classes(told: _Told, where: str) -> None:
    """A client has no statistics of a class that it does not hold."""
    for name in ("class_means", "score_own", "score_rotated"):
        sizes = told[name].abs().reshape(len(told.held), -1).amax(dim=1)
        refuse(
            sizes[~told.held] > 0,
            f"{where}: tensor {name!r} should be 0 for the classes of which the client has no "
            f"image; found {at_worst(sizes[~told.held])}",
        )


def _check_moments(told: _Told, where: str) -> None:
    """The class means add up to the mean, and the variance fits to them."""
    shares = told.counts / told.images
    means, mean, variance = told["class_means"], told["feature_mean"], told["feature_var"]
    if told.never_negative:
        for name in ("feature_mean", "class_means"):
            refuse(
                told[name] < 0,
                f"{where}: tensor {name!r} should be 0 or more, because this net ends with a ReLU; "
                f"found {at_worst(-told[name], -1)}",
            )
    size = shares @ means.abs() + mean.abs()
    apart = (shares @ means - mean).abs()
    refuse(
        apart > ROUNDED * size + 1e-30,
        f"{where}: tensor 'feature_mean' should be the mean of 'class_means' over the client's "
        f"images; found a difference of {at_worst(apart)}",
    )
    between = (shares @ (means - mean).square()).sqrt()
    refuse(
        between > variance.sqrt() * (1 + 1e-3) + ROUNDED * size,
        f"{where}: tensor 'feature_var' is smaller than the variance between the client's own "
        f"'class_means': no set of images has such features; found {at_worst(-variance, -1)}",
    )
    if told.never_negative:
        # Values ≥ 0 have the largest squares if one image of each class has all of them.
        largest = (told.counts.square() @ means.square()) / told.images - mean.square()
        refuse(
            variance > largest.clamp(min=0) * (1 + 1e-3) + ROUNDED * size.square() + 1e-30,
            f"{where}: tensor 'feature_var' is larger than the means of {told.images:.0f} images "
            f"with features ≥ 0 allow; found {at_worst(variance)}",
        )


def _check_scores(told: _Told, where: str) -> None:
    """Cosines lie within [−1, 1], and for features ≥ 0 often within a smaller range."""
    prototypes = F.normalize(told[NET + "head.prototypes"], dim=1)
    low, high = -torch.ones(len(prototypes)).double(), torch.ones(len(prototypes)).double()
    if told.never_negative:
        low = -prototypes.clamp(max=0).norm(dim=1)
        high = prototypes.clamp(min=0).norm(dim=1)
    for name in ("score_mean", "score_own", "score_rotated"):
        outside = torch.maximum(told[name] - high, low - told[name])
        worst = int(outside.argmax())
        refuse(
            outside > COSINE,
            f"{where}: tensor {name!r} should be a mean of cosines between {low[worst]:.4f} and "
            f"{high[worst]:.4f} for class {worst}; found {told[name][worst]:.4f}",
        )
    mean, spread = told["score_mean"], told["score_std"]
    most = ((high - mean).clamp(min=0) * (mean - low).clamp(min=0)).sqrt()
    worst = int((spread - most).argmax())
    refuse(
        spread > most + SPREAD,
        f"{where}: tensor 'score_std' should be at most {most[worst]:.4f} for cosines with the "
        f"mean {mean[worst]:.4f} of class {worst}; found {spread[worst]:.4f}",
    )
    _check_samples(told, where)


def _check_samples(told: _Told, where: str) -> None:
    """The mean of a share p of the images differs from that of all by at most σ √((1 − p)/p)."""
    sizes = torch.tensor([sampled(int(count)) for count in told.counts.tolist()]).double()
    share = sizes / told.counts.clamp(min=1) / told.held.sum()
    apart = (told["score_own"] - told["score_mean"]).abs()
    most = told["score_std"] * ((1 - share).clamp(min=0) / share).sqrt()
    slack = COSINE + SPREAD * (1 / share).sqrt()
    worst = int(((apart - most) * told.held).argmax())
    refuse(
        (apart > most + slack) & told.held,
        f"{where}: tensor 'score_own' should differ from 'score_mean' by at most "
        f"{most[worst]:.4f} for class {worst}, because 'score_std' is small; found "
        f"{apart[worst]:.4f}",
    )


def _check_accuracy(upload: Upload, where: str) -> None:
    """The accuracy is that of a whole number of images."""
    told, images = upload.header.train_accuracy, upload.header.samples
    if told is None:
        return
    right = round(told * images)
    refuse(
        torch.tensor(abs(told - right / images) > 1e-12),
        f"{where}: train_accuracy should be a whole number of {images} images; found {told!r}",
    )
