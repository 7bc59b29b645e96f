"""Small datasets of sites, whose images are known by their site and class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from accord.data.allocation import Allocation, allocate
from accord.data.images import Dataset, Images, Indices
from accord.data.schemes import make_scheme
from accord.data.settings import DataConfig

Pairs = list[tuple[str, int]]
NAMES = ("cat", "dog", "elk")


def part(pairs: Pairs) -> Images:
    """One image for each (site, class); all images differ."""
    pixels = np.arange(4 * len(pairs), dtype=np.uint32).view(np.uint8).reshape(-1, 2, 2, 4)[..., :1]
    sites = np.array([site for site, _ in pairs], np.str_)
    return Images(pixels.copy(), np.array([k for _, k in pairs], np.int64), {"site": sites})


def dataset(train: Pairs, test: Pairs | None = None) -> Dataset:
    held = None if test is None else part(test)
    return Dataset("toy", NAMES, part(train), held, (0.5,), (0.5,), "none", Path("toy"))


def dealt(
    data: Dataset, seed: int = 0, scheme: dict[str, Any] | None = None, **values: Any
) -> Allocation:
    asked = {"scheme": "by-column", "column": "site", **(scheme or {})}
    if asked["scheme"] != "by-column":
        asked.pop("column")
    config = DataConfig.model_validate({"name": "digits", **values})
    return allocate(data, config, make_scheme(asked), seed)


def pairs_of(images: Images, rows: Indices) -> Pairs:
    return list(
        zip(images.columns["site"][rows].tolist(), images.labels[rows].tolist(), strict=True)
    )


def counted(pairs: Pairs) -> dict[tuple[str, int], int]:
    return {pair: pairs.count(pair) for pair in sorted(set(pairs))}


def sized(**sites: tuple[int, ...]) -> Pairs:
    """Sites one after another, each with so many images of each class."""
    return [
        (name, label)
        for name, counts in sites.items()
        for label, count in enumerate(counts)
        for _ in range(count)
    ]


SITES = st.sampled_from(["a", "b", "c2", "c10"])
PAIRS = st.lists(st.tuples(SITES, st.integers(0, 2)), min_size=12, max_size=90)
