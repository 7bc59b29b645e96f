"""The blocks of images of a checkpoint's measure jobs, and the details that each of them tells."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from accord.data.allocation import Allocation, PartName
from accord.data.images import Labels
from accord.federation.measuring.scope import Checkpoint, Scope
from accord.fusion.details import Details
from accord.nets.inference import EVAL_BATCH

MEASURED: tuple[PartName, ...] = ("test", "validation", "own")  # parts that are never trained on

# Images per measure job. The number is small, so that all workers are busy, and fixed, so that sums
# do not depend on the number of workers. It is a multiple of the evaluation batch, so that all
# batches are full.
BLOCK = 2 * EVAL_BATCH

MIXED = 0.9  # share of the classes of spread images that the first images must hold


@dataclass(frozen=True)
class Block:
    """The images start, start + step, … before `stop` of a part."""

    part: PartName
    start: int
    stop: int
    step: int
    details: Details

    def __len__(self) -> int:
        return len(range(self.start, self.stop, self.step))


def blocks_at(scope: Scope, at: Checkpoint) -> Iterator[Block]:
    """Blocks that hold every image of every measured part once, and one more if it is needed.

    The first block of test images tells examples and neighbours. If the test images are sorted by
    class, a further block does this, whose images are spread over all test images.
    """
    allocation, last = scope.allocation, at.epoch == scope.final.epoch
    step = step_of(allocation.part("test").labels)
    seen = Details(neighbours=True, examples=last)
    for part in MEASURED:
        images = len(allocation.rows(part))
        leave = last and part == choosing_part(allocation)
        for start in range(0, images, BLOCK):
            shown = seen if part == "test" and start == 0 and step == 1 else Details()
            details = shown.model_copy(update={"leave_one_out": leave})
            yield Block(part, start, min(start + BLOCK, images), 1, details)
    if step > 1:
        yield Block("test", 0, len(allocation.rows("test")), step, seen)


def step_of(labels: Labels) -> int:
    """The step between the test images that tell examples and neighbours; 1 for the first block.

    Some datasets are sorted by class, so that the first block holds few classes and its neighbours
    are nearly all of the same class. Then at most BLOCK images are spread over all test images.
    """
    step = max(1, math.ceil(len(labels) / BLOCK))
    first, spread = (len(np.unique(some)) for some in (labels[:BLOCK], labels[::step]))
    return step if first < MIXED * spread else 1


def choosing_part(allocation: Allocation) -> PartName:
    """The part on which clients are left out: validation images if there are any, else the test."""
    return "validation" if len(allocation.rows("validation")) else "test"
