from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Dataset, Images, Labels
from accord.data.split import Split, split
from accord.data.strata import balanced_subset, stratified_split
from core.cases import looped

label_lists = st.lists(st.integers(0, 6), min_size=1, max_size=80)


def images(labels: Labels) -> Images:
    return Images(np.zeros((len(labels), 2, 2, 1), dtype=np.uint8), labels)


def dataset(train: Labels, test: Labels | None = None, names: str = "abcdefg") -> Dataset:
    held = None if test is None else images(test)
    return Dataset("toy", tuple(names), images(train), held, (0.5,), (0.5,), "none", Path())


def divide(data: Dataset, **values: Any) -> Split:
    defaults: dict[str, Any] = {
        "classes": None,
        "test_fraction": None,
        "public": 0.0,
        "validation": 0.0,
        "train_limit": None,
        "test_limit": None,
        "seed": 0,
    }
    return split(data, **{**defaults, **values})


class TestBalancedSubset:
    def test_first_of_every_class_in_file_order(self) -> None:
        labels = np.array([1, 1, 1, 0, 1, 0, 0, 0])
        assert balanced_subset(labels, 4).tolist() == [0, 1, 3, 5]

    def test_a_short_class_leaves_its_place_to_the_others(self) -> None:
        labels = np.array([0] * 10 + [1] * 2 + [2] * 10)
        found = np.bincount(labels[balanced_subset(labels, 12)])
        assert found.tolist() == [5, 2, 5]

    def test_a_limit_of_everything_or_more_is_everything(self) -> None:
        labels = np.array([2, 0, 2])
        for limit in (3, 4, 1000):
            assert balanced_subset(labels, limit).tolist() == [0, 1, 2]

    @pytest.mark.parametrize("limit", [2, 0, -1])
    def test_fewer_than_the_classes(self, limit: int) -> None:
        message = f"'train_limit': expected at least 3, one image for each class; found {limit}"
        with pytest.raises(AccordError, match=message):
            balanced_subset(np.array([0, 1, 2, 2]), limit, "train_limit")

    @given(values=label_lists, limit=st.integers(7, 100))
    def test_as_equal_as_can_be(self, values: list[int], limit: int) -> None:
        labels = np.array(values)
        found = balanced_subset(labels, limit)
        assert len(found) == min(limit, len(labels))
        assert np.all(np.diff(found) > 0)
        have, taken = np.bincount(labels), np.bincount(labels[found], minlength=max(values) + 1)
        for count, share in zip(have, taken, strict=True):  # full, or at most one below the top
            assert share == count or share >= taken.max() - 1
        for label in np.unique(labels):  # the first ones
            mine = np.flatnonzero(labels == label)
            assert np.isin(mine, found).tolist() == sorted(np.isin(mine, found), reverse=True)


class TestStratifiedSplit:
    def test_largest_remainders_by_hand(self) -> None:
        labels = np.repeat([0, 1, 2], [10, 7, 3])  # a quarter: 2.5, 1.75, 0.75; 5 in all
        held_out, rest = stratified_split(labels, 0.25, numpy_generator(0))
        assert np.bincount(labels[held_out]).tolist() == [2, 2, 1]
        assert np.sort(np.concatenate([held_out, rest])).tolist() == list(range(20))

    def test_a_class_keeps_its_last_image(self) -> None:
        labels = np.array([0, 1, 1, 2, 2, 2])
        held_out, rest = stratified_split(labels, 0.99, numpy_generator(0))
        assert np.bincount(labels[rest]).tolist() == [1, 1, 1]
        assert np.bincount(labels[held_out], minlength=3).tolist() == [0, 1, 2]

    def test_it_is_random_and_repeatable(self) -> None:
        labels = np.repeat([0, 1], 50)
        first, again, other = (
            stratified_split(labels, 0.3, numpy_generator(seed))[0].tolist() for seed in (0, 0, 1)
        )
        assert first == again
        assert first != other

    def test_every_image_is_as_likely(self) -> None:
        labels, rng = np.array([0, 1] * 10), numpy_generator(0)
        times = np.zeros(20)
        for _ in range(2000):
            times[stratified_split(labels, 0.3, rng)[0]] += 1
        np.testing.assert_allclose(times / 2000, 0.3, atol=0.05)

    @looped("fraction", [0.0, 1.0, -0.1, 1.5, float("nan")])
    def test_no_fraction(self, fraction: float) -> None:
        with pytest.raises(AccordError, match="'public': expected a fraction between 0 and 1"):
            stratified_split(np.array([0, 1]), fraction, numpy_generator(0), "public")

    @pytest.mark.parametrize("labels", [[0, 1, 2], [0, 0, 0, 1], []])
    def test_nothing_to_hold_out(self, labels: list[int]) -> None:
        with pytest.raises(AccordError, match="holds out none at all"):
            stratified_split(np.array(labels, dtype=np.int64), 0.1, numpy_generator(0))

    @given(values=label_lists, fraction=st.floats(0.01, 0.99), seed=st.integers(0, 99))
    def test_exact_and_stratified(self, values: list[int], fraction: float, seed: int) -> None:
        labels = np.array(values)
        try:
            held_out, rest = stratified_split(labels, fraction, numpy_generator(seed))
        except AccordError:
            assert round(fraction * len(labels)) == 0 or np.bincount(labels).max() < 3
            return
        assert np.sort(np.concatenate([held_out, rest])).tolist() == list(range(len(labels)))
        assert len(held_out) <= round(fraction * len(labels))
        for label, count in zip(*np.unique(labels, return_counts=True), strict=True):
            share = int((labels[held_out] == label).sum())
            assert share < count
            assert abs(share - fraction * count) <= 1 + 1e-9
        if np.bincount(labels)[np.unique(labels)].min() * (1 - fraction) >= 2:  # no class is short
            assert len(held_out) == round(fraction * len(labels))


class TestSplit:
    def test_own_test_part(self) -> None:
        data = dataset(np.array([0, 1, 2, 0, 1, 2]), np.array([2, 1, 0]), "abc")
        found = divide(data)
        assert found.train.tolist() == [0, 1, 2, 3, 4, 5]
        assert (found.test.tolist(), found.test_from) == ([0, 1, 2], "test")
        assert found.test_part(data) is data.test
        assert len(found.public) == len(found.validation) == 0
        assert found.classes == ("a", "b", "c")

    def test_classes_are_renumbered_in_the_order_given(self) -> None:
        data = dataset(np.array([0, 1, 2, 0, 1, 2]), np.array([2, 1, 0]), "abc")
        found = divide(data, classes=["c", 0])
        assert found.classes == ("c", "a")
        assert found.train.tolist() == [0, 2, 3, 5]
        assert found.renumber(data.train.labels[found.train]).tolist() == [1, 0, 1, 0]
        assert data.test is not None
        assert found.renumber(data.test.labels[found.test]).tolist() == [0, 1]

    def test_a_test_of_its_own_making_is_the_same_for_every_seed(self) -> None:
        data = dataset(np.repeat(np.arange(7), 20))
        splits = [divide(data, seed=seed, public=0.1, validation=0.1) for seed in (0, 1)]
        assert splits[0].test.tolist() == splits[1].test.tolist()
        assert splits[0].test_from == "train"
        assert splits[0].test_part(data) is data.train
        assert len(splits[0].test) == 28  # 0.2 of 140
        assert splits[0].public.tolist() != splits[1].public.tolist()
        assert splits[0].validation.tolist() != splits[1].validation.tolist()
        assert len(divide(data, test_fraction=0.5).test) == 70

    def test_the_order_of_the_classes_does_not_change_the_images(self) -> None:
        data = dataset(np.repeat(np.arange(7), 20))
        one, other = (divide(data, classes=c, public=0.2) for c in (["a", "d"], ["d", "a"]))
        assert one.test.tolist() == other.test.tolist()
        assert one.public.tolist() == other.public.tolist()

    def test_fractions_are_of_what_the_limit_left(self) -> None:
        data = dataset(np.repeat([0, 1], 500), np.repeat([0, 1], 100), "ab")
        found = divide(data, train_limit=200, test_limit=20, public=0.1, validation=0.1)
        sizes = [len(part) for part in (found.public, found.validation, found.train, found.test)]
        assert sizes == [20, 18, 162, 20]
        assert found.test.tolist() == [*range(10), *range(100, 110)]

    def test_a_seed_means_the_same_images_in_every_version(self) -> None:
        """Written down once: records of earlier versions must be comparable with later ones."""
        found = divide(dataset(np.repeat(np.arange(3), 8)), seed=5, public=0.25, validation=0.25)
        assert found.test.tolist() == [0, 3, 13, 14, 22]
        assert found.public.tolist() == [2, 6, 8, 16, 21]
        assert found.validation.tolist() == [1, 9, 10, 18]

    def test_validation_does_not_move_the_public_set(self) -> None:
        data = dataset(np.repeat(np.arange(7), 20))
        with_it, without = (divide(data, public=0.2, validation=v) for v in (0.2, 0.0))
        assert with_it.public.tolist() == without.public.tolist()

    @pytest.mark.parametrize(
        ("counts", "public", "said"),
        [
            ([40, 4, 40], 0.9, "0.9 of the 4 training images of class 'b' leaves clients none"),
            ([40, 40, 1], 0.7, "0.7 of the 1 training images of class 'c' leaves clients none"),
            ([5, 5, 5], 0.95, "0.95 of the 5 training images of class 'a' leaves clients none"),
        ],
    )
    def test_a_public_set_that_would_take_a_class_whole(
        self, counts: list[int], public: float, said: str
    ) -> None:
        data = dataset(np.repeat([0, 1, 2], counts), np.arange(3), "abc")
        with pytest.raises(AccordError, match=rf"'public': {said}.*smaller fraction"):
            divide(data, public=public)
        assert len(divide(data, public=0.0).train) == sum(counts)

    @given(
        counts=st.lists(st.integers(1, 30), min_size=2, max_size=5),
        public=st.floats(0.01, 0.99),
        seed=st.integers(0, 99),
    )
    def test_a_public_set_leaves_clients_every_class(
        self, counts: list[int], public: float, seed: int
    ) -> None:
        labels = np.repeat(np.arange(len(counts)), counts)
        data = dataset(labels, np.arange(7))
        try:
            found = divide(data, public=public, seed=seed)
        except AccordError:
            whole = any(round(public * count) >= count for count in counts)
            assert whole or round(public * len(labels)) == 0 or max(counts) < 2
            return
        assert np.unique(labels[found.train]).tolist() == list(range(len(counts)))
        assert len(found.public) <= round(public * len(labels))

    @looped(
        ("values", "message"),
        [
            ({"classes": ["horze"]}, "toy has no class 'horze'; did you mean 'horse'"),
            ({"classes": [3]}, r"no class 3\. Expected a name or an index in 0…2"),
            ({"classes": [-1]}, "no class -1"),
            ({"classes": [True]}, "no class True"),
            ({"classes": []}, "at least one class"),
            ({"classes": ["cat", 0]}, "found 'cat' twice"),
            ({"test_fraction": 0.2}, "its own test part of 3 images; found 0.2"),
            ({"train_limit": 2}, "'train_limit': expected at least 3"),
            ({"test_limit": 1}, "'test_limit': expected at least 3"),
            ({"public": 1.0}, "'public': expected a fraction"),
            ({"validation": -0.1}, "'validation': expected a fraction"),
            ({"validation": 0.001}, "'validation': 0.001 of 30 images"),
        ],
    )
    def test_mistakes(self, values: dict[str, Any], message: str) -> None:
        parts = images(np.repeat([0, 1, 2], 10)), images(np.array([0, 1, 2]))
        names = ("cat", "dog", "horse")
        data = Dataset("toy", names, *parts, (0.5,), (0.5,), "none", Path())
        with pytest.raises(AccordError, match=message):
            divide(data, **values)

    def test_classes_without_images(self) -> None:
        data = dataset(np.array([0, 0, 1]), np.array([0]), "abc")
        with pytest.raises(AccordError, match="no training images"):
            divide(data, classes=["c"])
        with pytest.raises(AccordError, match="no test images"):
            divide(data, classes=["b"])
        with pytest.raises(AccordError, match="'test_fraction': expected a fraction"):
            divide(dataset(np.array([0, 0, 1])), test_fraction=1.0)

    @settings(max_examples=150, deadline=None)
    @given(
        train=st.lists(st.integers(0, 6), min_size=20, max_size=120),
        own_test=st.booleans(),
        classes=st.none() | st.lists(st.integers(0, 6), min_size=1, unique=True),
        public=st.sampled_from([0.0, 0.1, 0.5]),
        validation=st.sampled_from([0.0, 0.2]),
        limit=st.none() | st.integers(7, 60),
        seed=st.integers(0, 20),
    )
    def test_no_image_serves_twice(
        self,
        train: list[int],
        own_test: bool,
        classes: list[int] | None,
        public: float,
        validation: float,
        limit: int | None,
        seed: int,
    ) -> None:
        data = dataset(np.array(train), np.arange(7) if own_test else None)
        values: dict[str, Any] = {"public": public, "validation": validation, "seed": seed}
        values |= {"classes": classes, "train_limit": limit, "test_limit": limit}
        try:
            found = divide(data, **values)
        except AccordError:  # too few images of the classes drawn
            return
        parts = [found.train, found.validation, found.public]
        parts += [] if own_test else [found.test]
        every = np.concatenate(parts)
        assert len(np.unique(every)) == len(every)
        assert all(np.all(np.diff(part) > 0) for part in (*parts, found.test))
        wanted = set(range(7) if classes is None else classes)
        assert set(data.train.labels[every]) <= wanted
        assert set(found.test_part(data).labels[found.test]) <= wanted
        if limit is None and not own_test:
            assert len(every) == sum(label in wanted for label in train)
        names = [found.classes[new] for new in found.renumber(data.train.labels[found.train])]
        assert names == ["abcdefg"[label] for label in data.train.labels[found.train]]
