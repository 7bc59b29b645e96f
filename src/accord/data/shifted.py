"""A client's images as it sees them, and its labels as it knows them."""

from __future__ import annotations

import numpy as np
from numpy.random import Generator

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Labels
from accord.data.imageset import ImageSet
from accord.data.settings import ShiftConfig
from accord.data.shifts import Holder, Shift, shifts

IMAGES = 1_024  # images that are changed at a time


def shifts_of(shift: ShiftConfig, holder: Holder) -> list[Shift]:
    """The changes of a client's images, in order."""
    return [shifts.get(name)(strength, holder) for name, strength in shift.of_images.items()]


def with_shift(data: ImageSet, shift: ShiftConfig, holder: Holder) -> ImageSet:
    """The images as client `holder` sees them; the labels are not changed.

    The changed images are a copy in memory, as uint8. Without any change, it is `data` itself.
    """
    changes = shifts_of(shift, holder)
    if not changes:
        return data
    changed = np.empty((len(data), *data.images.shape[1:]), dtype=np.uint8)
    for start in range(0, len(data), IMAGES):
        rows = data.rows[start : start + IMAGES]
        part = data.images[rows]
        for change in changes:
            part = change.apply(part, rows)
        changed[start : start + IMAGES] = part
    return ImageSet(changed, np.arange(len(data)), data.labels)


def known_labels(labels: Labels, classes: int, shift: ShiftConfig, holder: Holder) -> Labels:
    """The training labels as client `holder` knows them, some of them wrong if the study says so.

    max(1, round(labels_at·K)) of K clients have wrong labels.
    """
    if not shift.labels:
        return labels
    order = numpy_generator(holder.seed, "shift-labels-at").permutation(holder.clients)
    if order[holder.index] >= max(1, round(shift.labels_at * holder.clients)):
        return labels
    rng = numpy_generator(holder.seed, holder.index, "shift-labels")
    return with_wrong(labels, classes, shift.labels, rng)


def with_wrong(labels: Labels, classes: int, share: float, rng: Generator) -> Labels:
    """round(share·n) of n labels, at random, are replaced by another class, all equally likely."""
    if classes < 2:
        raise AccordError(
            "'shift.labels': a wrong label needs another class, but the data has only one. Remove "
            "the key, or use data with more classes."
        )
    wrong = rng.choice(len(labels), round(share * len(labels)), replace=False)
    changed = labels.copy()
    changed[wrong] = (labels[wrong] + rng.integers(1, classes, len(wrong))) % classes
    return changed
