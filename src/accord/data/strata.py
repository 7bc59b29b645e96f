"""Subsets that keep the share of every stratum: of every class, or of every class of every site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.data.images import Images, Indices, Labels


class NothingHeldOutError(AccordError):
    """A fraction of so few images that none is held out."""


@dataclass(frozen=True, eq=False)
class Strata:
    """The class of each image, and its site as an index of `names`.

    Without sites, `names` is empty and all images have the site 0.
    """

    labels: Labels
    sites: Indices
    names: tuple[str, ...]

    @classmethod
    def of(cls, part: Images, column: str | None) -> Strata:
        """The strata of a part. A column that the part does not have is left out."""
        labels = np.asarray(part.labels)
        if column is None or column not in part.columns:
            return cls(labels, np.zeros(len(labels), np.int64), ())
        names, sites = np.unique(part.columns[column], return_inverse=True)
        return cls(labels, sites.astype(np.int64), tuple(names.tolist()))

    def take(self, rows: Indices) -> Strata:
        return Strata(self.labels[rows], self.sites[rows], self.names)


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


def first_of_each(strata: Strata, limit: int, key: str = "limit") -> Indices:
    """The sorted positions of the first images of every class of every site, in file order.

    Every site keeps its share of the images, and within it every class keeps its share. Each class
    of each site keeps at least one image. `key` is the user's name of the limit.
    """
    sites, kinds, counts = _by_site(strata.labels, strata.sites)
    if limit >= len(strata.labels):
        return np.arange(len(strata.labels))
    if limit < len(counts):
        raise AccordError(
            f"{key!r}: expected at least {len(counts):,}, one image for each class of each of the "
            f"{len(np.unique(sites)):,} sites; found {limit:,}. Use a larger number or remove the "
            "key."
        )
    # A limit on the number of images may not change what a site is.
    members = np.bincount(sites)
    quotas = apportioned(np.bincount(sites, counts).astype(np.int64), limit, members)
    shares = np.empty_like(counts)
    for site, quota in enumerate(quotas.tolist()):
        mine = np.flatnonzero(sites == site)
        shares[mine] = apportioned(counts[mine], quota, np.ones_like(mine), first=site)
    return np.flatnonzero(_rank_in_class(kinds) < shares[kinds])


def _by_site(labels: Labels, sites: Indices) -> tuple[Indices, Indices, Indices]:
    """(site of each stratum, stratum of each image, size of each stratum).

    A stratum is a class of a site. The sites and strata that occur are numbered from 0.
    """
    span = int(labels.max(initial=0)) + 1
    found, kinds, counts = np.unique(sites * span + labels, return_inverse=True, return_counts=True)
    _, numbered = np.unique(found // span, return_inverse=True)
    return numbered.astype(np.int64), kinds.astype(np.int64), counts


def apportioned(counts: Indices, total: int, least: Indices, first: int = 0) -> Indices:
    """Shares of `total` in proportion to `counts`, by largest remainders, but at least `least`.

    Equal remainders get one more in the order first, first + 1, …, 0, 1, …, so that not all sites
    prefer the same class. `total` lies between the sums of `least` and of `counts`.
    """
    fixed = np.zeros(len(counts), bool)
    while True:
        left = max(int(counts[~fixed].sum()), 1)
        exact = np.where(fixed, least, (total - least[fixed].sum()) * counts / left)
        small = ~fixed & (exact < least)
        if not small.any():
            break
        fixed |= small
    shares: Indices = np.floor(exact).astype(np.int64)
    return _rounded_up(shares, exact, total - int(shares.sum()), ~fixed, first)


def _rounded_up(
    shares: Indices, exact: NDArray[Any], missing: int, able: NDArray[np.bool_], first: int
) -> Indices:
    """`shares` with one more for the `missing` largest remainders among those that are `able`."""
    order = np.roll(np.arange(len(shares)), -first)
    largest_first = order[np.argsort((shares - exact)[order], kind="stable")]
    chosen = largest_first[able[largest_first]][: max(0, missing)]
    shares[chosen] += 1
    return shares


def stratified_split(
    labels: Labels,
    fraction: float,
    rng: Generator,
    key: str = "fraction",
    sites: Indices | None = None,
) -> tuple[Indices, Indices]:
    """(held out, rest), both sorted, with about `fraction` of every class held out.

    A class gives ⌊fraction·n_c⌋ images or one more. The classes with the largest remainders give
    one more until round(fraction·n) is reached. A class never gives its last image, so with very
    small classes the total can be smaller. With `sites`, first round(fraction·n) is divided among
    the sites by largest remainders, and then every site gives its number of images in this way.
    `key` is the user's name of the fraction.
    """
    if not 0 < fraction < 1:
        raise AccordError(f"{key!r}: expected a fraction between 0 and 1; found {fraction}.")
    where = np.zeros(len(labels), np.int64) if sites is None else sites
    owners, kinds, counts = _by_site(labels, where)
    shares = _shares(owners, counts, fraction)
    # The images of a class are put in random order, and the first `share` of them are held out.
    shuffled = rng.permutation(len(labels))
    ranks = np.empty(len(labels), dtype=np.int64)
    ranks[shuffled] = _rank_in_class(kinds[shuffled])
    held_out = ranks < shares[kinds]
    if not held_out.any():
        of_sites = "" if sites is None else f" of {len(np.unique(owners)):,} sites"
        raise NothingHeldOutError(
            f"{key!r}: {fraction} of {len(labels):,} images in {len(counts):,} classes{of_sites} "
            "holds out none at all. Use a larger fraction or more images per class."
        )
    return np.flatnonzero(held_out), np.flatnonzero(~held_out)


def _shares(owners: Indices, counts: Indices, fraction: float) -> Indices:
    """The number of images that each class of each site gives."""
    wanted = fraction * np.bincount(owners, counts)
    quotas: Indices = np.floor(wanted).astype(np.int64)
    missing = round(fraction * int(counts.sum())) - int(quotas.sum())
    quotas = _rounded_up(quotas, wanted, missing, np.ones(len(quotas), bool), 0)
    exact = fraction * counts
    shares: Indices = np.minimum(np.floor(exact).astype(np.int64), counts - 1)
    for site, quota in enumerate(quotas.tolist()):
        mine = np.flatnonzero(owners == site)
        some = shares[mine]
        able = some + 1 < counts[mine]
        shares[mine] = _rounded_up(some, exact[mine], quota - int(some.sum()), able, first=site)
    return shares
