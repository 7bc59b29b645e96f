"""Which public images a bank is made of."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.config import parse
from accord.core.errors import AccordError
from accord.data.images import Labels
from accord.objective.bank import USUAL_SIZE, BankConfig, choose, stand_in
from accord.objective.negatives import Rows
from core.cases import looped

counts = st.lists(st.integers(1, 30), min_size=1, max_size=6)
SELECTIONS = ["balanced", "random"]


def bank(**options: Any) -> BankConfig:
    return parse(BankConfig, options, "bank")


def labels_of(counts: list[int]) -> Labels:
    """Labels with these counts, not in the order of classes."""
    found = np.repeat(np.arange(len(counts)), counts)
    return np.random.default_rng(0).permutation(found)


# --- how many ------------------------------------------------------------------------------------


@looped(
    ("available", "expected"),
    [(1, 1), (10, 10), (USUAL_SIZE - 1, 4095), (USUAL_SIZE, 4096), (USUAL_SIZE + 1, 4096)],
)
def test_the_usual_size_is_4096_or_all_there_are(available: int, expected: int) -> None:
    labels = np.arange(available) % 3
    assert bank().rows(labels) == expected
    assert len(bank().select(labels, 0)) == expected


@looped("selection", SELECTIONS)
@looped("size", [3, 17, 30])
def test_it_has_as_many_rows_as_asked_for(selection: str, size: int) -> None:
    labels, config = labels_of([5, 15, 10]), bank(size=size, selection=selection)
    assert config.rows(labels) == size
    assert len(config.select(labels, 0)) == size


@pytest.mark.parametrize("selection", SELECTIONS)
def test_more_rows_than_public_images_is_a_mistake(selection: str) -> None:
    config = bank(size=1031, selection=selection)
    with pytest.raises(AccordError, match=r"bank\.size: .* at most the 1,030 .* found 1,031"):
        config.select(labels_of([1000, 30]), 0)


def test_a_balanced_bank_with_fewer_rows_than_classes_is_a_mistake() -> None:
    labels = labels_of([5, 5, 5])
    with pytest.raises(AccordError, match=r"bank\.size.* at least 3, .* found 2"):
        bank(size=2).select(labels, 0)
    assert len(bank(size=2, selection="random").select(labels, 0)) == 2


@pytest.mark.parametrize("options", [{}, {"size": 5}, {"selection": "random"}])
def test_a_bank_without_public_images_is_a_mistake(options: dict[str, Any]) -> None:
    with pytest.raises(AccordError, match=r"needs public images.*data\.public"):
        bank(**options).select(np.zeros(0, dtype=np.int64), 0)


@pytest.mark.parametrize("options", [{"size": 0}, {"size": -3}, {"selection": "largest"}])
def test_settings_that_mean_nothing_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(AccordError, match=rf"bank\.{next(iter(options))}"):
        bank(**options)


# --- which ---------------------------------------------------------------------------------------


@settings(deadline=None)
@given(counts=counts, share=st.floats(0, 1), seed=st.integers(0, 100))
def test_a_balanced_bank_is_as_even_as_can_be(counts: list[int], share: float, seed: int) -> None:
    labels = labels_of(counts)
    size = len(counts) + round(share * (sum(counts) - len(counts)))
    chosen = bank(size=size).select(labels, seed)
    taken = np.bincount(labels[chosen], minlength=len(counts))
    assert taken.sum() == size
    # A class has fewer than others, by more than the odd one, only where it has no more to give.
    short = taken < taken.max() - 1
    assert taken[short].tolist() == np.array(counts)[short].tolist()


@settings(deadline=None)
@given(
    counts=counts,
    share=st.floats(0, 1),
    seed=st.integers(0, 100),
    selection=st.sampled_from(SELECTIONS),
)
def test_no_image_is_chosen_twice_and_they_are_sorted(
    counts: list[int], share: float, seed: int, selection: str
) -> None:
    labels = labels_of(counts)
    size = len(counts) + round(share * (sum(counts) - len(counts)))
    chosen = bank(size=size, selection=selection).select(labels, seed)
    assert chosen.dtype == np.int64
    assert bool((np.diff(chosen) > 0).all())
    assert chosen[0] >= 0
    assert chosen[-1] < len(labels)


def test_a_random_bank_takes_classes_as_they_come() -> None:
    labels = labels_of([950, 50])
    rare = [
        int((labels[bank(size=200, selection=selection).select(labels, 0)] == 1).sum())
        for selection in SELECTIONS
    ]
    assert rare[0] == 50
    assert 2 <= rare[1] <= 20  # about 10


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_seed_always_chooses_the_same_and_others_choose_otherwise(selection: str) -> None:
    labels, config = labels_of([40, 60, 50]), bank(size=30, selection=selection)
    chosen = [config.select(labels, seed).tolist() for seed in (0, 0, 1, 2)]
    assert chosen[0] == chosen[1]
    assert len({tuple(each) for each in chosen}) == 3


@pytest.mark.parametrize("selection", SELECTIONS)
def test_every_public_image_is_somebodys_choice(selection: str) -> None:
    # Not only the first of each class.
    labels, config = labels_of([8, 12]), bank(size=6, selection=selection)
    chosen = {place for seed in range(60) for place in config.select(labels, seed).tolist()}
    assert chosen == set(range(20))


@pytest.mark.parametrize("selection", SELECTIONS)
def test_a_bank_of_all_public_images_is_all_of_them_in_order(selection: str) -> None:
    labels = labels_of([8, 12])
    assert bank(selection=selection).select(labels, 0).tolist() == list(range(20))


def test_chosen_features_keep_their_labels() -> None:
    labels = labels_of([30, 5, 10])
    public = Rows(torch.arange(45.0)[:, None].expand(45, 3), torch.from_numpy(labels))
    config = bank(size=12)
    found, places = choose(public, config, 7), config.select(labels, 7)
    assert found.features.tolist() == [[place] * 3 for place in places.tolist()]
    assert found.labels.tolist() == labels[places].tolist()
    assert torch.bincount(found.labels).tolist() == [4, 4, 4]
    assert not found.own_class


# --- before there is a teacher -------------------------------------------------------------------


def test_a_stand_in_has_unit_features_and_the_labels_it_stands_for() -> None:
    labels = labels_of([3, 4])
    found = stand_in(labels, 6)
    assert found.features.shape == (7, 6)
    torch.testing.assert_close(found.features.norm(dim=1), torch.ones(7))
    assert found.labels.tolist() == labels.tolist()
    assert torch.equal(found.features, stand_in(labels, 6).features)
    assert len({tuple(row) for row in found.features.tolist()}) == 7
