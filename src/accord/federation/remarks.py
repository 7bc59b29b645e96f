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
