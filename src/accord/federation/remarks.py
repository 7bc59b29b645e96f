"""Remarks about the images of a study, which are told before anything is trained."""

from __future__ import annotations

from typing import NamedTuple

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
        column = trial.setup.partition.named_by
        larger = f"the same value of {column!r}" if column else "a smaller partition.clients"
        found = self._found.setdefault(recipe.name, {})
        found[key] = _Count(small, len(sizes), width, fewer, larger)

    def remarks(self) -> list[str]:
        """A remark for each recipe with such clients, and what to do."""
        counts = {name: list(found.values()) for name, found in self._found.items()}
        return [_remark(name, c) for name, c in counts.items() if any(one.small for one in c)]


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
        "aggregation; see docs/closed-form.md"
    )


def _some(names: list[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")
