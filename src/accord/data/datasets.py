"""Datasets by name. `load` finds, decodes and caches a dataset; workers use `open_cached`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from accord.core.errors import AccordError
from accord.data import cache
from accord.data.convert import convert, per_channel
from accord.data.images import Dataset, Images
from accord.data.known import DATASETS, Known
from accord.data.locate import locate, locate_sites
from accord.data.raw import Part, Raw, Request, Source, Tell, check_classes


def load(
    name: str,
    *,
    path: Path | None = None,
    root: Path | None = None,
    size: int | None = None,
    channels: int | None = None,
    sites: bool = False,
    tell: Tell,
) -> Dataset:
    """The decoded dataset `name` with images of `size`×`size`×`channels` (None: not converted).

    With `sites`, its files are one folder or file for each site, and the column SITE names them.
    """
    known = DATASETS.get(name)
    source = locate_sites(known, path) if sites else locate(known, path, root)
    constants = (known.mean, known.std, known.augment, known.classes)
    key = cache.key_of(source, name, size, channels, constants)
    folder = cache.obtain(key, lambda: _build(known, source, size, channels, tell), tell)
    return open_cached(folder)


def open_cached(folder: Path) -> Dataset:
    """The memory-mapped dataset in a cache entry that `load` made, for worker processes."""
    return cache.read(folder)


def _build(
    known: Known, source: Source, size: int | None, channels: int | None, tell: Tell
) -> Dataset:
    raw = source.read(Request(known.name, size, known.classes, tell))
    classes = _classes(known, raw, source)
    raw, remarks = convert(raw, size, channels)
    depth = raw.train.images.shape[-1]
    return Dataset(
        name=known.name,
        classes=classes,
        train=_images(raw.train),
        test=None if raw.test is None else _images(raw.test),
        mean=per_channel(known.mean, depth),
        std=per_channel(known.std, depth),
        augment=known.augment,
        folder=source.where,
        remarks=(*raw.remarks, *remarks),
    )


def _images(part: Part) -> Images:
    return Images(np.ascontiguousarray(part.images), part.labels, part.columns)


def _classes(known: Known, raw: Raw, source: Source) -> tuple[str, ...]:
    """The built-in class names of a known dataset, or else those of the source."""
    if known.classes and raw.classes and len(known.classes) != len(raw.classes):
        raise AccordError(
            f"{source.where}: {known.name!r} has {len(known.classes)} classes; these files have "
            f"{len(raw.classes)}. They hold another dataset; replace them by the right files."
        )
    check_classes(raw.classes, source.where)
    named = known.classes or raw.classes
    if named:
        return named
    parts = [raw.train] if raw.test is None else [raw.train, raw.test]
    highest = max(int(part.labels.max()) for part in parts)
    # Without names, the highest label gives the number of classes; a wrong label could be huge.
    if highest >= max(1000, len(raw.train.labels)):
        raise AccordError(
            f"{source.where}: labels go up to {highest} with {len(raw.train.labels)} images. "
            "Number the classes from 0 without large gaps, or add the class names."
        )
    return tuple(str(label) for label in range(highest + 1))
