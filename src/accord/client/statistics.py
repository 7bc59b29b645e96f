"""What a client measures of its own net on its own un-augmented images, in eval mode.

These few numbers per class and per feature travel in the upload; fusions that standardise features
or calibrate votes need nothing else of the client's data.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.messages import BriefingHeader
from accord.nets.inference import forward_all
from accord.nets.net import Net

ROTATED = 64  # images of each class that are also looked at rotated
NOISE = 64  # images of noise, for fusions that ask how a net sees what is none of its classes


def measure_client(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device
) -> tuple[float, dict[str, Tensor]]:
    """Train accuracy, and the moments of an upload.

    `feature_mean`, `feature_var` (d): of f over all images. `class_means` (C, d): of f per class,
    0 where the client holds none. `score_mean`, `score_std` (C): of s_c = cos(f, P[c]) over the
    client's images with every held class weighted equally. `score_own`, `score_rotated` (C): the
    mean of s_c over (at most 64) images of class c, and over the same images rotated by 90°.
    `noise_feature` (d): the mean of f over 64 images of noise, the same at every client.
    """
    classes = len(header.classes)
    P = F.normalize(net.head.prototypes.detach().cpu().double(), dim=1)
    counts = data.label_counts(classes)
    held = counts > 0
    # Per class: sums of f, and of s and s² of every score.
    width = P.shape[1]
    sums = torch.zeros(classes, width, dtype=torch.float64)
    squares = torch.zeros(width, dtype=torch.float64)
    scores = torch.zeros(2, classes, classes, dtype=torch.float64)
    correct = 0
    for features, logits, labels in forward_all(net, data, header, device):
        f = features.double()
        s = F.normalize(f, dim=1) @ P.T
        sums.index_add_(0, labels, f)
        squares += f.square().sum(dim=0)
        scores[0].index_add_(0, labels, s)
        scores[1].index_add_(0, labels, s.square())
        correct += int((logits.argmax(dim=1) == labels).sum())
    n = len(data)
    mean = sums.sum(dim=0) / n
    per_class = counts.clamp(min=1)[:, None]
    score_mean, score_square = (scores / per_class)[:, held].mean(dim=1)
    moments = {
        "feature_mean": mean,
        "feature_var": (squares / n - mean.square()).clamp(min=0),
        "class_means": sums / per_class,
        "score_mean": score_mean,
        "score_std": (score_square - score_mean.square()).clamp(min=0).sqrt(),
        **_own_scores(net, data, header, device, P),
        "noise_feature": _noise_feature(net, header, device),
    }
    return correct / n, {name: tensor.float() for name, tensor in moments.items()}


def _own_scores(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device, prototypes: Tensor
) -> dict[str, Tensor]:
    """How images of a class score for it as they are, and when they are no longer of any class."""
    classes = len(header.classes)
    first = [np.flatnonzero(data.labels == c)[:ROTATED] for c in range(classes)]
    some = data.take(np.concatenate(first))
    return {
        "score_own": _scores_of_own_class(net, some, header, device, prototypes),
        "score_rotated": _scores_of_own_class(net, some.rotated(), header, device, prototypes),
    }


def _noise_feature(net: Net, header: BriefingHeader, device: torch.device) -> Tensor:
    shape = (NOISE, header.channels, header.height, header.width)
    noise = torch.randn(shape, generator=torch_generator(0, "noise"))
    with torch.inference_mode():
        features: Tensor = net.eval().encoder(noise.to(device))
    return features.float().cpu().mean(dim=0)


def _scores_of_own_class(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device, prototypes: Tensor
) -> Tensor:
    """(C): the mean over images of class c of cos(f, P[c]); 0 where there are none."""
    sums = torch.zeros(len(prototypes), dtype=torch.float64)
    for features, _, labels in forward_all(net, data, header, device):
        scores = F.normalize(features.double(), dim=1) @ prototypes.T
        sums.index_add_(0, labels, scores.gather(1, labels[:, None])[:, 0])
    return sums / data.label_counts(len(prototypes)).clamp(min=1)
