"""Remarks about the images of a study, which are told before anything is trained."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from accord.core.names import listed, look_alike
from accord.data.allocation import Allocation
from accord.data.images import Dataset
from accord.data.schemes import Scheme
from accord.data.settings import ELSEWHERE
from accord.data.split import chosen_images
from accord.federation.briefing import settled_map
from accord.study.recipe import ClosedFormRecipe
from accord.study.study import Trial


def empty_classes(dataset: Dataset) -> list[str]:
    """A remark about classes without training images, which are allowed but unusual."""
    held = set(np.unique(dataset.train.labels).tolist())
    empty = [name for index, name in enumerate(dataset.classes) if index not in held]
    said = f"{_count(empty, 'class has', 'classes have')} no training image ({_some(empty)})"
    return [said] if empty else []


def unused_limits(allocation: Allocation) -> list[str]:
    """Remarks about limits above the number of images that there are."""
    data = allocation.data
    asked = {"train": data.train_limit, "test": data.test_limit}
    if data.name == ELSEWHERE or not any(asked.values()):
        return []
    there = chosen_images(
        allocation.dataset, data.classes, data.test_fraction, allocation.scheme.named_by
    )
    counts = {"train": len(there.train), "test": len(there.test)}
    return [
        f"data.{part}_limit is {limit:,}, but {data.name} has {counts[part]:,} {part} images: all "
        "of them are used"
        for part, limit in asked.items()
        if limit is not None and limit > counts[part]
    ]


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
            f"{_count(few, 'client holds', 'clients hold')} out no test images, because there "
            f"are too few of each class ({_some(few)})"
        )
    return remarks


def _absent(allocation: Allocation, column: str) -> list[str]:
    """Remarks about the sites of a column that are missing in a part of the data."""
    dataset, names = allocation.dataset, allocation.site_names
    remarks = []
    alike = look_alike(names)
    if alike:
        remarks.append(
            f"{len(alike)} sites have names that look alike ({_some(alike)}); if some of them are "
            "one site, give them one name"
        )
    idle = sorted(set(dataset.train.columns[column].tolist()) - set(names))
    if idle:
        remarks.append(
            f"{_count(idle, 'site has', 'sites have')} no training image of the chosen "
            f"classes, and so no part in the training ({_some(idle)})"
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
        remarks.append(
            f"{_count(unmeasured, 'site has', 'sites have')} no test images ({_some(unmeasured)})"
        )
    strange = sorted(set(measured.columns[column][allocation.split.test].tolist()) - set(names))
    if strange:
        remarks.append(
            f"{_count(strange, 'site has', 'sites have')} test images, but no training images "
            f"({_some(strange)})"
        )
    return remarks


def _count(names: Sequence[str], one: str, several: str) -> str:
    return f"{len(names)} {one if len(names) == 1 else several}"


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


class Privacy:
    """Counts the clients of closed forms that hold fewer images than φ has features.

    The sums of such a client may reveal individual images. Every partition of a study counts, once
    for each recipe. Clients whose images are elsewhere are unknown, and do not count.
    """

    def __init__(self) -> None:
        self._found: dict[str, dict[str, _Count]] = {}  # recipe → partition → its count

    def add(self, trial: Trial, key: str, allocation: Allocation) -> None:
        """Counts the clients of a trial; `key` is that of its allocation."""
        recipe = trial.recipe
        if not isinstance(recipe, ClosedFormRecipe) or recipe.pooled:
            return
        channels = allocation.dataset.train.images.shape[3]
        width = settled_map(trial, recipe, allocation).width(channels)
        sizes = allocation.partition.label_counts.sum(axis=1)
        small = int(((sizes > 0) & (sizes < width)).sum())
        fewer = (
            "a smaller map.landmarks" if recipe.map.landmarks else "a smaller count in map.blocks"
        )
        larger = _how_to_merge(trial.setup.partition)
        found = self._found.setdefault(recipe.name, {})
        found[key] = _Count(small, len(sizes), width, fewer, larger)

    def remarks(self) -> list[str]:
        """A remark for each recipe with such clients, and what to do."""
        counts = {name: list(found.values()) for name, found in self._found.items()}
        return [_remark(name, c) for name, c in counts.items() if any(one.small for one in c)]


def _how_to_merge(scheme: Scheme) -> str:
    """How the study gets larger clients."""
    if scheme.reads_sites:
        return "one folder or file for both"
    if scheme.named_by:
        return f"the same value of {scheme.named_by!r}"
    return "a smaller partition.clients"


class _Count(NamedTuple):
    """The clients of one partition."""

    small: int  # number of clients with fewer images than features
    clients: int
    width: int  # number of features
    fewer: str  # how the recipe gets fewer features
    larger: str  # how the study gets larger clients


def _remark(name: str, counts: list[_Count]) -> str:
    small, clients = (sum(c.small for c in counts), sum(c.clients for c in counts))
    cells = sum(c.small > 0 for c in counts)
    where = f" (in {cells} of {len(counts)} partitions)" if len(counts) > 1 else ""
    widths = sorted({c.width for c in counts})
    width = f"{widths[0]:,}" if len(widths) == 1 else f"{widths[0]:,}–{widths[-1]:,}"
    return (
        f"{name}: {small:,} of {clients:,} clients{where} hold fewer images than φ has features "
        f"({width}): their sums may reveal individual images. Use a map with fewer features "
        f"({counts[0].fewer}), merge small clients ({counts[0].larger}), or use secure "
        "aggregation with packing: float32; see docs/closed-form.md"
    )


def _some(names: list[str]) -> str:
    return listed(names, most=5)
