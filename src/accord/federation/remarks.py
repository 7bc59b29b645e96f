"""Remarks about the images of a study, which are told before anything is trained."""

from __future__ import annotations

import numpy as np

from accord.data.allocation import Allocation
from accord.data.images import Dataset
from accord.federation.briefing import settled_map
from accord.study.recipe import ClosedFormRecipe
from accord.study.study import Trial


def empty_classes(dataset: Dataset) -> list[str]:
    """A remark about classes without training images, which are allowed but unusual."""
    held = set(np.unique(dataset.train.labels).tolist())
    empty = [name for index, name in enumerate(dataset.classes) if index not in held]
    return [f"{len(empty)} classes have no training image ({_some(empty)})"] if empty else []


def about_sites(allocation: Allocation) -> list[str]:
    """Remarks about sites that have no images to train on, or none that are held out."""
    column = allocation.scheme.named_by
    remarks = _absent(allocation, column) if column is not None else []
    if not allocation.data.test_per_client:
        return remarks
    names = zip(allocation.site_names, allocation.partition.own, strict=True)
    few = [name for name, own in names if not len(own)]
    if few:
        remarks.append(
            f"{len(few)} clients hold out no test images, because they have too few of each class "
            f"({_some(few)})"
        )
    return remarks


def _absent(allocation: Allocation, column: str) -> list[str]:
    """Remarks about the sites of a column that are missing in a part of the data."""
    dataset, names = allocation.dataset, allocation.site_names
    remarks = []
    idle = sorted(set(dataset.train.columns[column].tolist()) - set(names))
    if idle:
        remarks.append(
            f"{len(idle)} sites have no training image of the chosen classes and are no clients "
            f"({_some(idle)})"
        )
    measured = allocation.split.test_part(dataset)
    if column not in measured.columns:
        remarks.append(
            f"the test part has no column {column!r}: the sites of its images are unknown "
            "(data.test_per_client holds out images of each site)"
        )
        return remarks
    owners = allocation.owners("test")
    unmeasured = [name for k, name in enumerate(names) if not (owners == k).any()]
    if unmeasured:
        remarks.append(f"{len(unmeasured)} sites have no test images ({_some(unmeasured)})")
    strange = sorted(set(measured.columns[column][allocation.split.test].tolist()) - set(names))
    if strange:
        remarks.append(
            f"{len(strange)} sites have test images, but no training images ({_some(strange)})"
        )
    return remarks


def lacking_in_bank(allocation: Allocation) -> str | None:
    """A remark about classes without public images, for which a bank has no features."""
    there = allocation.part("public").label_counts(len(allocation.classes)).tolist()
    named = zip(allocation.classes, there, strict=True)
    lacking = [name for name, count in named if not count]
    if not lacking:
        return None
    return (
        f"the public images have none of {len(lacking)} classes ({_some(lacking)}), and so the "
        "bank has no features of these classes"
    )


def revealing(trial: Trial, allocation: Allocation) -> tuple[int, int, int]:
    """(clients with fewer images than features, clients, features) of a closed form.

    The sums of such clients reveal single images. Clients whose images are elsewhere do not count.
    """
    recipe = trial.recipe
    if not isinstance(recipe, ClosedFormRecipe) or recipe.pooled:
        return 0, 0, 0
    channels = allocation.dataset.train.images.shape[3]
    width = settled_map(trial, recipe, allocation).width(channels)
    sizes = allocation.partition.label_counts.sum(axis=1)
    return int(((sizes > 0) & (sizes < width)).sum()), len(sizes), width


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
