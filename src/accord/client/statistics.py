"""What a client measures of its own net on its own un-augmented images, in eval mode.

These few numbers per class and per feature travel in the upload; fusions that standardise features
or calibrate votes need nothing else of the client's data. They come from one pass over all images,
and from small samples of rotated images and of noise: 1.2 passes in all.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import torch_generator
from accord.data.images import Indices, Labels
from accord.data.imageset import ImageSet
from accord.messages import BriefingHeader
from accord.nets.inference import forward_all
from accord.nets.net import Net

MOST = 64  # rotated images of each class, and images of noise
ROTATED = 0.15  # of the images of a class are also looked at rotated, but at least one
NOISE = 0.05  # as many images of noise as this share of the client's images, but at least four


def measure_client(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device
) -> tuple[float, dict[str, Tensor]]:
    """Train accuracy, and the statistics of an upload.

    `feature_mean`, `feature_var` (d): of f over all images. `class_means` (C, d): of f per class,
    0 where the client holds none. `score_mean`, `score_std` (C): of s_c = cos(f, P[c]) over the
    client's images with every held class weighted equally. `score_own`, `score_rotated` (C): the
    mean of s_c over a sample of the images of class c, and over the same images rotated by 90°.
    `noise_feature` (d): the mean of f over images of noise, the same images at every client.
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
    own = torch.empty(len(data), dtype=torch.float64)  # s_y of every image
    correct = seen = 0
    for features, logits, labels in forward_all(net, data, header, device):
        f = features.double()
        s = F.normalize(f, dim=1) @ P.T
        sums.index_add_(0, labels, f)
        squares += f.square().sum(dim=0)
        scores[0].index_add_(0, labels, s)
        scores[1].index_add_(0, labels, s.square())
        own[seen : seen + len(labels)] = s.gather(1, labels[:, None])[:, 0]
        correct += int((logits.argmax(dim=1) == labels).sum())
        seen += len(labels)
    n = len(data)
    mean = sums.sum(dim=0) / n
    per_class = counts.clamp(min=1)[:, None]
    score_mean, score_square = (scores / per_class)[:, held].mean(dim=1)
    sample = rotated_sample(data.labels)
    statistics = {
        "feature_mean": mean,
        "feature_var": (squares / n - mean.square()).clamp(min=0),
        "class_means": sums / per_class,
        "score_mean": score_mean,
        "score_std": (score_square - score_mean.square()).clamp(min=0).sqrt(),
        "score_own": _mean_by_class(own[sample], data.labels[sample], classes),
        "score_rotated": _rotated_scores(net, data.take(sample), header, device, P),
        "noise_feature": _noise_feature(net, noise_images(n), header, device),
    }
    return correct / n, {name: tensor.float() for name, tensor in statistics.items()}


def rotated_sample(labels: Labels) -> Indices:
    """Positions of the first images of each class: 15 % of them, at least 1 and at most 64."""
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        found.append(members[: min(MOST, max(1, int(ROTATED * len(members))))])
    return np.concatenate(found)


def noise_images(images: int) -> int:
    """How many images of noise a client with so many images looks at."""
    return min(MOST, max(4, int(NOISE * images)))


def _rotated_scores(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device, prototypes: Tensor
) -> Tensor:
    """(C): how images score for their own class when they are no longer of any class."""
    found = []
    for features, _, labels in forward_all(net, data.rotated(), header, device):
        scores = F.normalize(features.double(), dim=1) @ prototypes.T
        found.append(scores.gather(1, labels[:, None])[:, 0])
    return _mean_by_class(torch.cat(found), data.labels, len(prototypes))


def _mean_by_class(values: Tensor, labels: Labels, classes: int) -> Tensor:
    """(C): the mean of the values of each class; 0 where there are none."""
    at = torch.from_numpy(labels)
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, at, values)
    return sums / torch.bincount(at, minlength=classes).clamp(min=1)


def _noise_feature(net: Net, count: int, header: BriefingHeader, device: torch.device) -> Tensor:
    shape = (count, header.channels, header.height, header.width)
    noise = torch.randn(shape, generator=torch_generator(0, "noise"))
    with torch.inference_mode():
        features: Tensor = net.eval().encoder(noise.to(device))
    return features.float().cpu().mean(dim=0)
