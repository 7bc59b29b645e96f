"""The split of a dataset into training, validation, public and test images.

Every part is stratified by class. If the clients are sites, whose names are in a column of the
data, every part is stratified by site and, within a site, by class (strata.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np
from numpy.random import Generator

from accord.core.errors import AccordError, nearest
from accord.core.randomness import numpy_generator
from accord.data.images import Dataset, Images, Indices, Labels
from accord.data.strata import (
    NothingHeldOutError,
    Strata,
    balanced_subset,
    first_of_each,
    stratified_split,
)

TEST_FRACTION = 0.2  # the default for a dataset without a test part


@dataclass(frozen=True, eq=False)  # == of arrays is not one truth value
class Split:
    """Sorted positions in the decoded parts. No image has two purposes.

    `train`, `validation`, `public` and `own` are positions in `dataset.train`; `test` are positions
    in the part that `test_from` names. `own` are the images that sites hold out for themselves; it
    is empty if the clients are not sites of a column. `classes` are the kept classes.
    `numbers[old]` is the new number of the dataset's class `old`, or −1 for a class that was left
    out.
    """

    train: Indices
    validation: Indices
    public: Indices
    test: Indices
    test_from: Literal["train", "test"]
    classes: tuple[str, ...]
    numbers: Labels
    own: Indices

    def renumber(self, labels: Labels) -> Labels:
        """Labels of the dataset as labels of the kept classes."""
        return self.numbers[labels]

    def test_part(self, dataset: Dataset) -> Images:
        """The part of `dataset` to which the positions in `test` refer."""
        return measured_part(dataset)


class Chosen(NamedTuple):
    """The images of the wanted classes: `numbers`, `test` and `test_from` are those of `Split`."""

    kept: list[int]
    numbers: Labels
    train: Indices
    test: Indices
    test_from: Literal["train", "test"]


def measured_part(dataset: Dataset) -> Images:
    """The part of `dataset` that test images come from: its test part, if it has one."""
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
    column: str | None = None,
    test_per_client: float = 0.0,
) -> Split:
    """Selects classes, then the test part, the limits, and the other parts one after another.

    `column` holds the site of each image, if the clients are sites. `test_per_client` is the
    fraction of each site's images that the site holds out. `public` is a fraction of the images
    that are left, and `validation` of those that are left then; 0 means none. The test images and
    those that sites hold out are the same for every seed.
    """
    kept, numbers, train, test, test_from = chosen_images(dataset, classes, test_fraction, column)
    strata = Strata.of(dataset.train, column)
    train = _limited(train, strata, train_limit, "train_limit")
    measured = Strata.of(measured_part(dataset), column)
    test = _limited(test, measured, test_limit, "test_limit")
    own = train[:0]
    if strata.names and test_per_client:
        own = _own(train, strata, test_per_client)
        train = np.setdiff1d(train, own)
    if 0 < public < 1:
        _refuse_emptied_class(dataset, strata.labels[train], public)
    shared, train = _take(train, strata, public, numpy_generator(seed, "public"), "public")
    rng = numpy_generator(seed, "validation")
    held_out, train = _take(train, strata, validation, rng, "validation")
    names = tuple(dataset.classes[index] for index in kept)
    return Split(train, held_out, shared, test, test_from, names, numbers, own)


def chosen_images(
    dataset: Dataset,
    classes: Sequence[str | int] | None,
    test_fraction: float | None,
    column: str | None,
) -> Chosen:
    """The training and test images of the wanted classes, before any limit."""
    kept = _kept_classes(dataset, classes)
    numbers = np.full(len(dataset.classes), -1, dtype=np.int64)
    numbers[kept] = np.arange(len(kept))
    train = np.flatnonzero(numbers[dataset.train.labels] >= 0)
    strata = Strata.of(dataset.train, column)
    return Chosen(kept, numbers, *_take_test(dataset, numbers, train, test_fraction, strata))


def _own(train: Indices, strata: Strata, fraction: float) -> Indices:
    """The images that the sites hold out for themselves; each site gives `fraction` of its own."""
    taken = []
    for site in np.unique(strata.sites[train]).tolist():
        mine = train[strata.sites[train] == site]
        # A constant replaces the seed, so that the images are the same for every seed.
        rng = numpy_generator(0, "own", strata.names[site])
        taken.append(mine[held_by(strata.labels[mine], fraction, rng)])
    return np.sort(np.concatenate(taken))


def held_by(labels: Labels, fraction: float, rng: Generator) -> Indices:
    """The sorted positions of the images that one client holds out; none if it has too few."""
    try:
        return stratified_split(labels, fraction, rng)[0]
    except NothingHeldOutError:
        return np.zeros(0, np.int64)


def _kept_classes(dataset: Dataset, wanted: Sequence[str | int] | None) -> list[int]:
    """The positions in `dataset.classes` of the wanted classes, in the given order."""
    if wanted is None:
        if len(dataset.classes) < 2:
            raise AccordError(
                f"{dataset.name}: expected images of two or more classes; found only the class "
                f"{dataset.classes[0]!r}. Add images of another class."
            )
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
    dataset: Dataset, numbers: Labels, train: Indices, fraction: float | None, strata: Strata
) -> tuple[Indices, Indices, Literal["train", "test"]]:
    """(train, test, part of test): the own test part, or a fraction of the training images."""
    if len(train) == 0:
        raise AccordError(f"{dataset.name} has no training images of the chosen classes.")
    if dataset.test is None:
        # A constant replaces the seed, so that the test images are the same for every seed.
        rng, wanted = numpy_generator(0, "test"), TEST_FRACTION if fraction is None else fraction
        test, rest = _take(train, strata, wanted, rng, "test_fraction")
        return rest, test, "train"
    if fraction is not None:
        raise AccordError(
            f"'test_fraction': {dataset.name} comes with its own test part of "
            f"{len(dataset.test):,} images; found {fraction}. Remove the key, or use test_limit."
        )
    test = np.flatnonzero(numbers[dataset.test.labels] >= 0)
    if len(test) == 0:
        raise AccordError(f"{dataset.name} has no test images of the chosen classes.")
    return train, test, "test"


def _limited(part: Indices, strata: Strata, limit: int | None, key: str) -> Indices:
    """A subset with balanced classes; or, of sites, with their own sizes and class shares."""
    if limit is None:
        return part
    if strata.names:
        return part[first_of_each(strata.take(part), limit, key)]
    return part[balanced_subset(strata.labels[part], limit, key)]


def _take(
    part: Indices, strata: Strata, fraction: float, rng: Generator, key: str
) -> tuple[Indices, Indices]:
    """(taken, rest) of `part`."""
    if fraction == 0:
        return part[:0], part
    some = strata.take(part)
    sites = some.sites if some.names else None
    taken, rest = stratified_split(some.labels, fraction, rng, key, sites)
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
