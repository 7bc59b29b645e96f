"""The images of clients as they see them, and their labels as they know them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.random import Generator

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Indices, Labels
from accord.data.imageset import ImageSet
from accord.data.settings import ShiftConfig
from accord.data.shifts import Holder, Shift, shifts

IMAGES = 1_024  # images that are changed at a time


def shifts_of(shift: ShiftConfig, holder: Holder) -> list[Shift]:
    """The changes of a client's images, in order."""
    return [shifts.get(name)(strength, holder) for name, strength in shift.of_images.items()]


def values_at(
    shift: ShiftConfig, seed: int, sites: Sequence[str]
) -> dict[str, dict[str, tuple[float, ...]]]:
    """Site → each change of its images → the site's own values; empty without any change."""
    if not shift.of_images:
        return {}
    holders = {name: Holder(seed, index, len(sites)) for index, name in enumerate(sites)}
    return {
        name: dict(zip(shift.of_images, (c.values for c in shifts_of(shift, holder)), strict=True))
        for name, holder in holders.items()
    }


def seen(data: ImageSet, shift: ShiftConfig, seed: int, sites: Indices, count: int) -> ImageSet:
    """The images as their sites see them; `sites` is the site of each image, of `count` sites.

    An image of no known site (−1) is not changed. The changed images are a copy in memory, as
    uint8. Without any change, it is `data` itself.
    """
    if not shift.of_images:
        return data
    changed = np.empty((len(data), *data.images.shape[1:]), dtype=np.uint8)
    for site, places in by_site(sites):
        changes = shifts_of(shift, Holder(seed, site, count)) if site >= 0 else []
        for start in range(0, len(places), IMAGES):
            some = places[start : start + IMAGES]
            rows = data.rows[some]
            part = data.images[rows]
            for change in changes:
                part = change.apply(part, rows)
            changed[some] = part
    return ImageSet(changed, np.arange(len(data)), data.labels)


def known_labels(
    labels: Labels, classes: int, shift: ShiftConfig, seed: int, sites: Indices, count: int
) -> Labels:
    """Training labels as their sites know them, some of them wrong if the study says so.

    max(1, round(labels_at·K)) of K = `count` sites have wrong labels.
    """
    if not shift.labels:
        return labels
    order = numpy_generator(seed, "shift-labels-at").permutation(count)
    told = labels.copy()
    for site, places in by_site(sites):
        if site >= 0 and order[site] < max(1, round(shift.labels_at * count)):
            rng = numpy_generator(seed, site, "shift-labels")
            told[places] = with_wrong(labels[places], classes, shift.labels, rng)
    return told


def by_site(sites: Indices) -> list[tuple[int, Indices]]:
    """Each site that occurs, and the positions of its images."""
    return [(int(site), np.flatnonzero(sites == site)) for site in np.unique(sites)]


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
