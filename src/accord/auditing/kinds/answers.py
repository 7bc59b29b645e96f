"""The answers of a client's net to labelled images of the server, among the classes it claims."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import CLEAR, FEWEST, Sign
from accord.core.names import shown
from accord.fusion.base import Outputs
from accord.messages import Upload

SHARE = 0.1  # of the images of its largest class that a client must hold of a class to know it
FEWEST_IMAGES = 5  # of a class
LEARNT = 0.3  # median skill; below it no client has learnt much, and nobody stands out
FAR_BELOW = 0.75  # by how much of the median skill a client is below it if the sign is clear
ERRORS = 3.0  # standard errors of the skill
ADMITTED = 0.75  # × the median accuracy: a client that tells less says itself that it learnt little
LARGEST = 0.9 * CLEAR  # such a client, perhaps with few images, does not stand out by this alone


class Skill(NamedTuple):
    """0: not better than guessing among the classes that it holds; 1: always right."""

    value: float
    error: float
    right: float
    classes: int


@kinds.register("answers")
class Answers(Kind):
    """(accuracy − 1/m)/(1 − 1/m) among the m classes that a client holds, compared with others.

    Other classes are left out of the question and of the answer, so that a client which lacks many
    classes does not stand out. A client with one class cannot be judged, and one that tells a low
    accuracy on its own images is no clear case.
    """

    name = "answers"
    of: ClassVar[Literal["nets", "sums", "both"]] = "nets"
    quick = False

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.counts: dict[str, Tensor] = {}
        self.claimed: dict[str, float] = {}  # the accuracy on its own images that a client tells

    def see(self, upload: Upload) -> None:
        self.counts[upload.header.client] = upload.tensors["label_counts"]
        self.claimed[upload.header.client] = upload.header.train_accuracy or 0.0

    def judge(self) -> Iterable[Sign]:
        images = self.case.labelled
        if images is None:
            return
        labels = torch.from_numpy(images.labels)
        each = zip(self.counts.items(), self.case.outputs, strict=True)
        found = {
            client: skill
            for (client, counts), outputs in each
            if (skill := skill_of(outputs, counts, labels)) is not None
        }
        if len(found) < FEWEST:
            return
        median = statistics.median(skill.value for skill in found.values())
        usual = statistics.median(self.claimed.values())
        for client, skill in found.items():
            below = max(median - skill.value, 0.0) if median >= LEARNT else 0.0
            strength = min(
                below / (FAR_BELOW * max(median, LEARNT)), below / (ERRORS * skill.error)
            )
            if self.claimed[client] < ADMITTED * usual:
                strength = min(strength, LARGEST)
            yield Sign(
                client,
                self.name,
                strength,
                f"the net of client {shown(client)} is right on {100 * skill.right:.0f} % of the "
                f"{self.case.part} images of the {skill.classes} classes that it holds; guessing "
                f"gives {100 / skill.classes:.0f} %",
            )


def skill_of(outputs: Outputs, counts: Tensor, labels: Tensor) -> Skill | None:
    """None if the client holds fewer than two classes of which there are labelled images."""
    enough = max(FEWEST_IMAGES, SHARE * int(counts.max()))
    there = torch.bincount(labels, minlength=len(counts)) > 0
    held = (counts >= enough) & there
    classes = int(held.sum())
    if classes < 2:
        return None
    asked = held[labels]
    said = outputs.logits[asked].masked_fill(~held, -torch.inf).argmax(dim=1)
    right = (said == labels[asked]).double()
    of_class = torch.zeros(len(counts), dtype=torch.float64).index_add_(0, labels[asked], right)
    accuracy = (of_class / torch.bincount(labels, minlength=len(counts)))[held].mean().item()
    chance = 1 / classes
    error = (0.25 / len(right)) ** 0.5 / (1 - chance)  # the largest that the accuracy can have
    return Skill((accuracy - chance) / (1 - chance), error, accuracy, classes)
