"""Statistics of a client's net on the client's own un-augmented images, in eval mode.

The upload carries these few numbers per class and per feature. Fusions that standardise features or
calibrate votes need no other information about the client's data. The statistics take one pass over
all images and passes over small samples of rotated images and of noise: 1.2 passes in total.
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

MOST = 64  # upper limit of the rotated images of each class, and of the images of noise
ROTATED = 0.15  # share of the images of a class that are also used rotated; at least one image
NOISE = 0.05  # images of noise as a share of the client's images; at least four


def measure_client(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device, said: int | None = None
) -> tuple[float, dict[str, Tensor]]:
    """The train accuracy, and the statistics of an upload; `said`: the images it will claim.

    `feature_mean`, `feature_var` (d): mean and variance of f over all images. `class_means` (C, d):
    mean of f per class, 0 for classes that the client does not hold. `score_mean`, `score_std` (C):
    mean and standard deviation of s_c = cos(f, P[c]) over the client's images, where every held
    class has the same weight. `score_own`, `score_rotated` (C): mean of s_c over a sample of the
    images of class c, and over the same images rotated by 90°. `noise_feature` (d): mean of f over
    images of noise, which are the same at every client.
    """
    classes = len(header.classes)
    P = F.normalize(net.head.prototypes.detach().cpu().double(), dim=1)
    counts = data.label_counts(classes)
    held = counts > 0
    # Per class: the sums of f, of s and of s² for every score.
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
        "noise_feature": noise_feature(net, noise_images(said or n), header, device),
    }
    return correct / n, {name: tensor.float() for name, tensor in statistics.items()}


def rotated_sample(labels: Labels) -> Indices:
    """Positions of the first images of each class: 15 % of them, at least 1 and at most 64."""
    found = []
    for label in np.unique(labels):
        members = np.flatnonzero(labels == label)
        found.append(members[: sampled(len(members))])
    return np.concatenate(found)


def sampled(images: int) -> int:
    """The number of images of a class that are also used rotated."""
    return min(MOST, max(1, int(ROTATED * images)))


def noise_images(images: int) -> int:
    """The number of images of noise for a client with this number of `images`."""
    return min(MOST, max(4, int(NOISE * images)))


def _rotated_scores(
    net: Net, data: ImageSet, header: BriefingHeader, device: torch.device, prototypes: Tensor
) -> Tensor:
    """The mean score of rotated images for the class of the unrotated image, (C)."""
    found = []
    for features, _, labels in forward_all(net, data.rotated(), header, device):
        scores = F.normalize(features.double(), dim=1) @ prototypes.T
        found.append(scores.gather(1, labels[:, None])[:, 0])
    return _mean_by_class(torch.cat(found), data.labels, len(prototypes))


def _mean_by_class(values: Tensor, labels: Labels, classes: int) -> Tensor:
    """The mean of the values of each class, (C); 0 for a class without values."""
    at = torch.from_numpy(labels)
    sums = torch.zeros(classes, dtype=torch.float64).index_add_(0, at, values)
    return sums / torch.bincount(at, minlength=classes).clamp(min=1)


def noise_feature(net: Net, count: int, header: BriefingHeader, device: torch.device) -> Tensor:
    """The mean feature of `count` images of noise; the server can compute it again."""
    shape = (count, header.channels, header.height, header.width)
    noise = torch.randn(shape, generator=torch_generator(0, "noise"))
    with torch.inference_mode():
        features: Tensor = net.eval().encoder(noise.to(device))
    return features.float().cpu().mean(dim=0)
