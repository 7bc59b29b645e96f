"""Who takes part, and with which images: what clients hold out, who is left out, who is pooled."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from accord.core.errors import AccordError, nearest
from accord.core.names import listed
from accord.core.randomness import numpy_generator
from accord.data.images import Indices, Labels
from accord.data.partition import Partition, count_labels
from accord.data.split import held_by


def hold_out(
    partition: Partition, labels: Labels, fraction: float, seed: int
) -> tuple[Partition, tuple[Indices, ...]]:
    """The partition without the images that its clients hold out, and the positions of these.

    Every client holds out about `fraction` of its images of each class, but never the last image of
    a class.
    """
    if not partition.disjoint:
        raise AccordError(
            "'data.test_per_client': the clients of this partition scheme share images, so that "
            "one client would train on the held-out images of another. Use a scheme in which they "
            "do not, or remove the key."
        )
    own = []
    for client, part in enumerate(partition.indices):
        rng = numpy_generator(seed, "own", client)
        own.append(part[held_by(labels[part], fraction, rng)])
    kept = (np.setdiff1d(part, gone) for part, gone in zip(partition.indices, own, strict=True))
    return _with_images(partition, tuple(kept), labels), tuple(own)


def without(partition: Partition, site: str) -> Partition:
    """The partition without one client. It is still one of the `sites`."""
    sites = partition.sites
    if site not in sites:
        raise AccordError(
            f"'partition.leave_out': there is no client {site!r}{nearest(site, sites) or '.'} "
            f"Clients: {listed(sites)}."
        )
    if len(sites) == 1:
        raise AccordError(
            f"'partition.leave_out': {site!r} is the only client, so that none would take part. "
            "Remove the key."
        )
    kept = [index for index, name in enumerate(sites) if name != site]
    return replace(
        partition,
        indices=tuple(partition.indices[k] for k in kept),
        names=tuple(partition.names[k] for k in kept),
        label_counts=partition.label_counts[kept],
    )


def pool(
    partition: Partition, copies: int, positions: Indices, origins: Indices, labels: Labels
) -> Partition:
    """The partition of `copies` clients that each hold all images at `positions`.

    `origins` is the site of each of these images.
    """
    order = np.argsort(positions, kind="stable")
    together = replace(
        partition,
        names=tuple(str(k) for k in range(copies)),
        disjoint=copies == 1,
        origins=(origins[order],) * copies,
    )
    return _with_images(together, (positions[order],) * copies, labels)


def _with_images(partition: Partition, indices: tuple[Indices, ...], labels: Labels) -> Partition:
    classes = partition.label_counts.shape[1]
    counts = count_labels(indices, labels, classes)
    return replace(partition, indices=indices, label_counts=counts)
