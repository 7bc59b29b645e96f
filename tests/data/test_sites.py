"""Sites of a column: none is lost in a split, and every image that is measured has its owner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from accord.core.names import natural
from accord.data.allocation import Allocation, open_allocation
from accord.data.images import Dataset, Images
from accord.data.strata import Strata, apportioned, first_of_each
from accord.federation.remarks import about_sites
from data.toy_sites import (
    NAMES,
    PAIRS,
    SITES,
    Pairs,
    counted,
    dataset,
    dealt,
    pairs_of,
    part,
    sized,
)


class TestLimits:
    def test_a_limit_on_a_file_sorted_by_site_keeps_every_site_and_its_skew(self) -> None:
        # The old rule took the first images of each class: 40 of 50 images were those of a and b.
        data = dataset(sized(a=(10, 10), b=(10, 10), c=(10, 10), d=(36, 4)), sized(a=(1, 1)))
        made = dealt(data, train_limit=50)
        assert made.site_names == ("a", "b", "c", "d")
        assert made.partition.label_counts[:, :2].tolist() == [[5, 5], [5, 5], [5, 5], [18, 2]]
        taken = made.split.train
        assert taken[:10].tolist() == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]  # the first of each

    def test_largest_remainders_by_hand(self) -> None:
        # 10 of 19: sites 9/19·10 = 4.74, 7/19·10 = 3.68, 3/19·10 = 1.58 → 5, 4, 1; but site c has
        # two classes and keeps two: the others share 8: 9/16·8 = 4.5, 7/16·8 = 3.5 → 5 (first), 3.
        strata = Strata.of(part(sized(a=(6, 3), b=(7,), c=(1, 2))), "site")
        kept = strata.take(first_of_each(strata, 10))
        found = counted(
            [(strata.names[s], k) for s, k in zip(kept.sites, kept.labels, strict=True)]
        )
        # a: 5·6/9 = 3.33, 5·3/9 = 1.67 → 3, 2
        assert found == {("a", 0): 3, ("a", 1): 2, ("b", 0): 3, ("c", 0): 1, ("c", 1): 1}

    def test_equal_sites_stay_equal_and_so_do_the_classes(self) -> None:
        strata = Strata.of(part(sized(**{f"s{k:03}": (3, 3, 3) for k in range(200)})), "site")
        kept = strata.take(first_of_each(strata, 200 * 5))
        assert set(np.bincount(kept.sites)) == {5}
        assert np.ptp(np.bincount(kept.labels)) <= 2

    def test_everything_and_too_little(self) -> None:
        data = dataset(sized(a=(2, 1), b=(1, 0, 1)), sized(a=(1, 1)))
        assert len(dealt(data, train_limit=99).split.train) == 5
        assert len(dealt(data, train_limit=4).split.train) == 4
        said = (
            r"'train_limit': expected at least 4, one image for each class of each of the 2 sites"
        )
        with pytest.raises(AccordError, match=said + r"; found 3\. Use a larger number"):
            dealt(data, train_limit=3)

    def test_a_test_limit_keeps_every_site(self) -> None:
        data = dataset(sized(a=(4, 4), b=(4, 4)), sized(a=(8, 8), b=(4, 4)))
        made = dealt(data, test_limit=12)
        assert data.test is not None
        found = counted(pairs_of(data.test, made.part("test").rows))
        assert found == {("a", 0): 4, ("a", 1): 4, ("b", 0): 2, ("b", 1): 2}

    @settings(max_examples=100, deadline=None)
    @given(
        counts=st.lists(st.integers(1, 40), min_size=1, max_size=12),
        draw=st.data(),
    )
    def test_shares_are_proportional(self, counts: list[int], draw: st.DataObject) -> None:
        least = [draw.draw(st.integers(0, count)) for count in counts]
        total = draw.draw(st.integers(sum(least), sum(counts)))
        first = draw.draw(st.integers(0, 5))
        have, low = np.array(counts), np.array(least)
        shares = apportioned(have, total, low, first)
        assert shares.sum() == total
        assert (shares >= low).all()
        assert (shares <= have).all()
        free = shares > low  # among those that no bound holds, shares are proportional
        if free.any():
            rate = shares[free] / have[free]
            slack = 1 / have[free]
            assert (rate - slack).max() <= (rate + slack).min() + 1e-9


TOO_FEW = ("holds out none", "leaves clients none", "one image for each class")


@settings(max_examples=80, deadline=None)
@given(
    train=PAIRS,
    held=st.none() | st.lists(st.tuples(SITES, st.integers(0, 2)), min_size=6, max_size=30),
    ordered=st.sampled_from(["site", "class", "none"]),
    fractions=st.tuples(*[st.sampled_from([0.0, 0.1, 0.3, 0.6])] * 3),
    limit=st.none() | st.integers(12, 80),
    seed=st.integers(0, 50),
)
def test_no_site_and_no_class_of_a_site_is_lost(
    train: Pairs,
    held: Pairs | None,
    ordered: str,
    fractions: tuple[float, float, float],
    limit: int | None,
    seed: int,
) -> None:
    """Whatever the order of the file: every (site, class) is still trained on."""
    if ordered != "none":
        train = sorted(train, key=lambda pair: pair if ordered == "site" else pair[::-1])
    data = dataset(train, held)
    public, validation, own = fractions
    values: dict[str, Any] = {"public": public, "validation": validation, "test_per_client": own}
    try:
        made = dealt(data, seed, **values, train_limit=limit)
    except AccordError as error:
        if not any(said in str(error) for said in TOO_FEW):
            raise
        return
    parts = [made.split.train, made.split.public, made.split.validation, made.part("own").rows]
    parts += [] if held else [made.split.test]
    every = np.concatenate(parts)
    assert len(np.unique(every)) == len(every)  # no image has two purposes
    clients = np.concatenate([made.client(k).rows for k in range(len(made.partition.names))])
    assert sorted(clients) == made.split.train.tolist()
    assert set(pairs_of(data.train, clients)) == set(train)
    assert made.site_names == tuple(sorted({site for site, _ in train}, key=natural))
    if limit is None and held is None:
        assert len(every) == len(train)
    for name in ("test", "validation", "public", "own"):
        images = data.test if name == "test" and data.test else data.train
        rows, owners = made.part(name).rows, made.owners(name)
        sites = [site for site, _ in pairs_of(images, rows)]
        for site, owner in zip(sites, owners.tolist(), strict=True):
            assert (made.site_names[owner] if owner >= 0 else None) == (
                site if site in made.site_names else None
            )


@settings(max_examples=60, deadline=None)
@given(train=PAIRS, fraction=st.sampled_from([0.1, 0.25, 0.5]), shuffle=st.randoms())
def test_how_many_images_a_site_gives_does_not_depend_on_the_order_of_the_file(
    train: Pairs, fraction: float, shuffle: Any
) -> None:
    mixed = shuffle.sample(train, len(train))
    found: list[Any] = []
    for pairs in (train, mixed):
        data = dataset(pairs)
        try:
            made = dealt(data, test_fraction=fraction)
        except AccordError:
            found.append(None)
            continue
        rows = made.part("test").rows
        found.append((counted(pairs_of(data.train, rows)), made.partition.label_counts.tolist()))
        for site, count in zip(*np.unique(made.owners("test"), return_counts=True), strict=True):
            size = sum(name == made.site_names[site] for name, _ in pairs)
            assert count <= np.ceil(fraction * size) + 1e-9
    assert found[0] == found[1]


class TestSplits:
    def test_every_site_gives_its_share_to_the_test(self) -> None:
        # All remainders are equal: the classes alone would take the images of the first sites.
        data = dataset(sized(**{f"s{k}": (3, 3, 3) for k in range(20)}))
        made = dealt(data, test_fraction=1 / 3)
        assert np.bincount(made.owners("test")).tolist() == [3] * 20
        data = dataset(sized(a=(4, 4, 4), b=(3, 3, 3), c=(2, 2, 2)))
        made = dealt(data, test_fraction=0.25)  # 6.75 of 27: 3, 2.25, 1.5
        assert np.bincount(made.owners("test")).tolist() == [3, 2, 2]

    def test_owners_come_from_the_column_of_the_part_that_is_measured(self) -> None:
        data = dataset(sized(a=(2, 2), c=(2, 2)), [("c", 0), ("b", 1), ("a", 0), ("a", 1)])
        made = dealt(data)
        assert made.site_names == ("a", "c")
        assert made.owners("test").tolist() == [1, -1, 0, 0]
        assert made.owners("own").tolist() == []
        assert made.origins(1).tolist() == [1, 1, 1, 1]
        unnamed = Images(data.train.images[:2], np.array([0, 1]))
        plain = Dataset("toy", NAMES, data.train, unnamed, (0.5,), (0.5,), "none", Path("toy"))
        assert dealt(plain).owners("test").tolist() == [-1, -1]
        assert dealt(data, scheme={"scheme": "iid", "clients": 2}).owners("test").tolist() == [
            -1,
            -1,
            -1,
            -1,
        ]

    def test_other_schemes_do_not_see_the_column(self) -> None:
        """Their images are those of a dataset without columns, bit for bit."""
        data = dataset(sized(a=(9, 5, 3), b=(2, 8, 1), c=(7, 7, 7)))
        bare = Dataset(
            "toy",
            NAMES,
            Images(data.train.images, data.train.labels),
            None,
            (0.5,),
            (0.5,),
            "none",
            Path("toy"),
        )
        values = {"public": 0.2, "validation": 0.2, "train_limit": 30}
        scheme = {"scheme": "dirichlet", "clients": 2}
        one, two = (dealt(each, 3, scheme, **values) for each in (data, bare))
        for name in ("train", "public", "validation", "test"):
            assert getattr(one.split, name).tolist() == getattr(two.split, name).tolist()
        assert one.partition.hash == two.partition.hash
        assert one.partition.hash != dealt(data, 3, None, **values).partition.hash

    def test_a_column_with_gaps_is_refused(self) -> None:
        data = dataset([("a", 0), ("", 1), ("b", 0), ("", 0)], [("a", 0)])
        with pytest.raises(AccordError, match=r"no value for 2 of 4 images.*Fill in the column"):
            dealt(data)


def same(one: Allocation, other: Allocation) -> None:
    assert one.partition.hash == other.partition.hash
    assert one.site_names == other.site_names
    assert one.scheme == other.scheme
    for k in range(len(one.partition.names)):
        assert one.client(k).rows.tolist() == other.client(k).rows.tolist()
        assert one.origins(k).tolist() == other.origins(k).tolist()
    for name in ("test", "validation", "public", "own"):
        assert one.part(name).rows.tolist() == other.part(name).rows.tolist()
        assert one.owners(name).tolist() == other.owners(name).tolist()


def test_a_worker_opens_the_same_sites(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = dataset(sized(a=(9, 5, 3), b=(2, 8, 1), c=(7, 7, 7)))
    monkeypatch.setattr("accord.data.allocation.open_cached", lambda _: data)
    values = {"public": 0.2, "validation": 0.2, "train_limit": 50, "test_per_client": 0.25}
    asked: list[dict[str, Any]] = [
        {},
        {"leave_out": "b"},
        {"leave_out": "b", "pooled": 1},
        {"scheme": "dirichlet", "clients": 3, "pooled": 2},
        {"scheme": "iid", "clients": 3, "leave_out": 1},
    ]
    for number, scheme in enumerate(asked):
        made = dealt(data, 1, scheme, **values)
        path = tmp_path / f"{number}.json"
        made.save(path)
        same(made, open_allocation(path))


def test_values_without_a_name_are_refused() -> None:
    for blank in ("", "  ", "\t"):
        with pytest.raises(AccordError, match="has no value for 2 of 4 images"):
            dealt(dataset([("a", 0), ("a", 1), (blank, 0), (blank, 1)], sized(a=(1, 1))))


def test_a_message_names_sites_only_if_there_are_sites() -> None:
    data = dataset(sized(a=(1, 1), b=(1, 1)))
    with pytest.raises(AccordError, match="4 images in 4 classes of 2 sites holds out none"):
        dealt(data, test_fraction=0.1)
    with pytest.raises(AccordError, match="4 images in 2 classes holds out none"):
        dealt(data, scheme={"scheme": "iid", "clients": 2}, test_fraction=0.1)


def test_sites_that_look_alike_are_told() -> None:
    data = dataset(sized(**{"North": (3, 3), "north ": (3, 3), "b": (3, 3)}), sized(b=(1, 1)))
    (told,) = [line for line in about_sites(dealt(data)) if "look alike" in line]
    assert told.startswith("2 sites have names that look alike (North, 'north ')")
