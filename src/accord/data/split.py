"""The split of a dataset into training, validation, public and test images."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.random import Generator

from accord.core.errors import AccordError, nearest
from accord.core.randomness import numpy_generator
from accord.data.images import Dataset, Images, Indices, Labels

TEST_FRACTION = 0.2  # the default for a dataset without a test part


@dataclass(frozen=True, eq=False)  # == of arrays is not one truth value
class Split:
    """Sorted positions in the decoded parts. No image has two purposes.

    `train`, `validation` and `public` are positions in `dataset.train`; `test` are positions in
    the part that `test_from` names. `classes` are the kept classes. `numbers[old]` is the new
    number of the dataset's class `old`, or −1 for a class that was left out.
    """

    train: Indices
    validation: Indices
    public: Indices
    test: Indices
    test_from: Literal["train", "test"]
    classes: tuple[str, ...]
    numbers: Labels

    def renumber(self, labels: Labels) -> Labels:
        """Labels of the dataset as labels of the kept classes."""
        return self.numbers[labels]

    def test_part(self, dataset: Dataset) -> Images:
        """The part of `dataset` to which the positions in `test` refer."""
        return _measured_part(dataset)


def _measured_part(dataset: Dataset) -> Images:
    return dataset.train if dataset.test is None else dataset.test


def split(
    dataset: Dataset,
    *,
    classes: Sequence[str | int] | None,
    test_fraction: float | None,
    public: float,
    validation: float,
    train_limit: int | None,
    test_limit: int | None,
    seed: int,
) -> Split:
    """Selects classes, then the test part, the limits, the public set and the validation set.

    `public` is a fraction of the training images, and `validation` is a fraction of the remaining
    ones; 0 means none. The test images are the same for every seed.
    """
    kept = _kept_classes(dataset, classes)
    numbers = np.full(len(dataset.classes), -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    train = np.flatnonzero(numbers[dataset.train.labels] >= 0)
    train, test, test_from = _take_test(dataset, numbers, train, test_fraction)
    labels = dataset.train.labels
    train = _limited(train, labels, train_limit, "train_limit")
    test = _limited(test, _measured_part(dataset).labels, test_limit, "test_limit")
    if 0 < public < 1:
        _refuse_emptied_class(dataset, labels[train], public)
    shared, train = _take(train, labels, public, numpy_generator(seed, "public"), "public")
    rng = numpy_generator(seed, "validation")
    held_out, train = _take(train, labels, validation, rng, "validation")
    names = tuple(dataset.classes[index] for index in kept)
    return Split(train, held_out, shared, test, test_from, names, numbers)


def _kept_classes(dataset: Dataset, wanted: Sequence[str | int] | None) -> list[int]:
    """The positions in `dataset.classes` of the wanted classes, in the given order."""
    if wanted is None:
        return list(range(len(dataset.classes)))
    kept = [_class_index(dataset, name) for name in wanted]
    if len(kept) == 0:
        raise AccordError("'classes': expected at least one class, found none. Remove the key.")
    twice = {dataset.classes[index] for index in kept if kept.count(index) > 1}
    if twice:
        raise AccordError(f"'classes': expected every class once, found {min(twice)!r} twice.")
    return kept


def _class_index(dataset: Dataset, name: str | int) -> int:
    # YAML reads `yes` or `no` without quotes as a truth value, which Python treats as 1 or 0.
    if isinstance(name, int) and not isinstance(name, bool) and 0 <= name < len(dataset.classes):
        return name
    if isinstance(name, str) and name in dataset.classes:
        return dataset.classes.index(name)
    raise AccordError(
        f"{dataset.name} has no class {name!r}{nearest(str(name), dataset.classes) or '.'} "
        f"Expected a name or an index in 0…{len(dataset.classes) - 1}."
    )


def _take_test(
    dataset: Dataset, numbers: Labels, train: Indices, fraction: float | None
) -> tuple[Indices, Indices, Literal["train", "test"]]:
    """(train, test, part of test): the own test part, or a fraction of the training images."""
    if len(train) == 0:
        raise AccordError(f"{dataset.name} has no training images of the chosen classes.")
    if dataset.test is None:
        # A constant replaces the seed, so that the test images are the same for every seed.
        rng, wanted = numpy_generator(0, "test"), TEST_FRACTION if fraction is None else fraction
        labels = dataset.train.labels[train]
        test, rest = stratified_split(labels, wanted, rng, "test_fraction")
        return train[rest], train[test], "train"
    if fraction is not None:
        raise AccordError(
            f"'test_fraction': {dataset.name} comes with its own test part of "
            f"{len(dataset.test):,} images; found {fraction}. Remove the key, or use test_limit."
        )
    test = np.flatnonzero(numbers[dataset.test.labels] >= 0)
    if len(test) == 0:
        raise AccordError(f"{dataset.name} has no test images of the chosen classes.")
    return train, test, "test"


def _limited(part: Indices, labels: Labels, limit: int | None, key: str) -> Indices:
    return part if limit is None else part[balanced_subset(labels[part], limit, key)]


def _take(
    part: Indices, labels: Labels, fraction: float, rng: Generator, key: str
) -> tuple[Indices, Indices]:
    """(taken, rest) of `part`."""
    if fraction == 0:
        return part[:0], part
    taken, rest = stratified_split(labels[part], fraction, rng, key)
    return part[taken], part[rest]


def _refuse_emptied_class(dataset: Dataset, labels: Labels, public: float) -> None:
    """Refuses a public set that takes all images of a class, because no client could learn it."""
    present, counts = np.unique(labels, return_counts=True)
    emptied = np.flatnonzero(np.round(public * counts) >= counts)
    if len(emptied):
        first = emptied[0]
        raise AccordError(
            f"'public': {public} of the {counts[first]:,} training images of class "
            f"{dataset.classes[present[first]]!r} leaves clients none of it. Use a smaller "
            "fraction or more images."
        )


def balanced_subset(labels: Labels, limit: int, key: str = "limit") -> Indices:
    """The sorted positions of the first images of every class in file order.

    The classes are as equally frequent as the data allow. `key` is the user's name of the limit.
    """
    present = len(np.unique(labels))
    if limit < max(1, present):
        raise AccordError(
            f"{key!r}: expected at least {max(1, present)}, one image for each class; "
            f"found {limit}. Use a larger number or remove the key."
        )
    # The first image of every class is taken, then the second of every class, and so on.
    order = np.lexsort((labels, _rank_in_class(labels)))
    return np.sort(order[:limit])


def _rank_in_class(labels: Labels) -> Indices:
    """0 for the first image of its class, 1 for the second, …"""
    order = np.argsort(labels, kind="stable")
    _, counts = np.unique(labels, return_counts=True)
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[order] = np.arange(len(labels)) - np.repeat(np.cumsum(counts) - counts, counts)
    return ranks


def stratified_split(
    labels: Labels, fraction: float, rng: Generator, key: str = "fraction"
) -> tuple[Indices, Indices]:
    """(held out, rest), both sorted, with about `fraction` of every class held out.

    A class gives ⌊fraction·n_c⌋ images or one more. The classes with the largest remainders give
    one more until round(fraction·n) is reached. A class never gives its last image, so with very
    small classes the total can be smaller. `key` is the user's name of the fraction.
    """
    if not 0 < fraction < 1:
        raise AccordError(f"{key!r}: expected a fraction between 0 and 1; found {fraction}.")
    _, classes, counts = np.unique(labels, return_inverse=True, return_counts=True)
    shares = _shares(counts, fraction)
    # The images of a class are put in random order, and the first `share` of them are held out.
    shuffled = rng.permutation(len(labels))
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[shuffled] = _rank_in_class(classes[shuffled])
    held_out = ranks < shares[classes]
    if not held_out.any():
        raise AccordError(
            f"{key!r}: {fraction} of {len(labels):,} images in {len(counts):,} classes holds out "
            "none at all. Use a larger fraction or more images per class."
        )
    return np.flatnonzero(held_out), np.flatnonzero(~held_out)


def _shares(counts: Indices, fraction: float) -> Indices:
    """The number of images that each class gives."""
    exact = fraction * counts
    shares: Indices = np.minimum(np.floor(exact).astype(np.int64), counts - 1)
    missing = round(fraction * int(counts.sum())) - int(shares.sum())
    largest_first = np.argsort(shares - exact, kind="stable")
    able = largest_first[shares[largest_first] + 1 < counts[largest_first]]
    shares[able[: max(0, missing)]] += 1
    return shares
