"""Details of a measurement: example images, nearest neighbours, and fusions without one client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.config import Config
from accord.data.imageset import ImageSet
from accord.fusion.base import Outputs, Uploads, Vote

EXAMPLES = 6  # wrong images, and right ones
MOST_CLIENTS = 20  # K clients need K·(K − 1) votes to leave out each of them


class Details(Config):
    """The details that are wanted of a block of images, besides its tallies."""

    examples: bool = False
    neighbours: bool = False
    leave_one_out: bool = False


NO_DETAILS = Details()


def examples_of(scores: Tensor, images: ImageSet) -> list[dict[str, Any]]:
    """Up to 6 wrong predictions with the highest confidence, then up to 6 right ones.

    The right ones are the first ones of different classes, and then the first of the others.
    `image` is the image's row in the part of the dataset that `images` comes from.
    """
    probabilities = scores.double().softmax(dim=1)
    predicted, labels = scores.argmax(dim=1), torch.from_numpy(images.labels)
    confidences = probabilities.max(dim=1).values.tolist()
    wrong = (predicted != labels).nonzero().flatten().tolist()
    right = (predicted == labels).nonzero().flatten().tolist()
    wrong.sort(key=lambda position: -confidences[position])  # equal ones stay in their order
    first = {int(labels[position]): position for position in reversed(right)}
    once = sorted(first.values())
    others = sorted({*right} - {*once})
    return [
        {
            "image": int(images.rows[position]),
            "label": int(labels[position]),
            "predicted": int(predicted[position]),
            "confidence": confidences[position],
        }
        for position in (*wrong[:EXAMPLES], *(once + others)[:EXAMPLES])
    ]


def neighbour_accuracy(features: Tensor, labels: Tensor) -> float | None:
    """Share of the images whose nearest other image, by cosine, has the same class.

    Of equally near images, the first counts. The result is None for one image.
    """
    if len(labels) < 2:
        return None
    unit = F.normalize(features.float(), dim=1)
    near = (unit @ unit.T).fill_diagonal_(-torch.inf)
    return (labels[near.argmax(dim=1)] == labels).double().mean().item()


def hits_without_each(
    rule: Vote, files: Uploads, outputs: Sequence[Outputs], labels: Tensor
) -> list[int | None]:
    """For each client: the number of correct images if the rule fuses all clients but this one.

    `outputs` are those of each client's net for the images. The combiner is made anew without the
    client, as if it had sent nothing. The number is None if the scores are not finite.
    """
    found: list[int | None] = []
    for scores in scores_without_each(rule, files, outputs):
        finite = bool(torch.isfinite(scores).all())
        found.append(int((scores.argmax(dim=1) == labels).sum()) if finite else None)
    return found


def scores_without_each(rule: Vote, files: Uploads, outputs: Sequence[Outputs]) -> Iterator[Tensor]:
    """The scores of the rule without each client, whose combiner is made anew."""
    clients = files.summaries()
    for left in range(len(clients)):
        stayed = [k for k in range(len(clients)) if k != left]
        combiner = rule.combiner([clients[k] for k in stayed], files.briefing)
        votes = (combiner.vote(place, outputs[k]) for place, k in enumerate(stayed))
        yield combiner.decide(reduce(torch.add, votes))
