"""Sums of features: they add up, they can be taken away, and they survive every packing."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.closed_form.packing import PACKINGS, Packing
from accord.closed_form.sums import Sums, check_sums
from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from closed_form.support import CLASSES, EDGES
from closed_forms import Data, assert_same_sums, dealt, furthest, made_up, pixels, sums_by_hand
from core.cases import case

seeds = st.integers(0, 10_000)
widths = st.integers(1, 8)

# --- adding and taking away --------------------------------------------------------------------


def test_the_sums_of_three_images_by_hand() -> None:
    # (1, 0) and (3, 2) of class 0, mean (2, 1); (5, 1) of class 1. All three: mean (3, 1).
    first = Sums(
        torch.tensor([2, 0]),
        torch.tensor([[4.0, 2.0], [0.0, 0.0]], dtype=torch.float64),
        torch.tensor([[2.0, 2.0], [2.0, 2.0]], dtype=torch.float64),
    )
    second = Sums(
        torch.tensor([0, 1]),
        torch.tensor([[0.0, 0.0], [5.0, 1.0]], dtype=torch.float64),
        torch.zeros(2, 2, dtype=torch.float64),
    )
    both = first + second
    assert both.counts.tolist() == [2, 1]
    assert both.total == 3
    assert both.mean.tolist() == [3, 1]
    assert both.sums.tolist() == [[4, 2], [5, 1]]
    torch.testing.assert_close(both.scatter, torch.tensor([[8.0, 2.0], [2.0, 2.0]]).double())
    assert_same_sums(both - second, first)
    assert_same_sums(both - first, second)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, rows=st.integers(0, 30), width=widths, clients=st.integers(1, 6))
def test_clients_add_up_to_all_images_in_any_order_and_grouping(
    seed: int, rows: int, width: int, clients: int
) -> None:
    data = made_up(seed, rows, width, CLASSES)
    parts = [sums_by_hand(part, CLASSES) for part in dealt(data, clients, seed)]
    expected = sums_by_hand(data, CLASSES)
    assert_same_sums(reduce(add, parts), expected)
    draws = numpy_generator(seed, "order")
    while len(parts) > 1:  # any two, until one is left
        one, other = (parts.pop(int(draws.integers(len(parts)))) for _ in range(2))
        parts.append(one + other)
    assert_same_sums(parts[0], expected)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, rows=st.integers(1, 30), width=widths)
def test_what_is_taken_away_leaves_the_sums_of_the_rest(seed: int, rows: int, width: int) -> None:
    data = made_up(seed, rows, width, CLASSES)
    gone, rest = dealt(data, 2, seed)
    found = sums_by_hand(data, CLASSES) - sums_by_hand(gone, CLASSES)
    # The rest may be far less than what was there: a share of that is all that can be asked.
    largest = sums_by_hand(data, CLASSES)
    expected = sums_by_hand(rest, CLASSES)
    assert found.counts.tolist() == expected.counts.tolist()
    assert furthest(found.sums, expected.sums) <= 1e-12 * float(np.abs(data.features).sum())
    assert furthest(found.scatter, expected.scatter) <= 1e-12 * float(largest.scatter.abs().max())


@settings(max_examples=50, deadline=None)
@given(seed=seeds, rows=st.integers(5, 30), others=st.integers(1, 30), width=widths)
def test_who_came_and_left_was_never_there(seed: int, rows: int, others: int, width: int) -> None:
    data = made_up(seed, rows + others, width, CLASSES)
    stayed = sums_by_hand(data.take(np.arange(rows)), CLASSES)
    guest = sums_by_hand(data.take(np.arange(rows, rows + others)), CLASSES)
    assert_same_sums((stayed + guest) - guest, stayed, within=1e-8)


@pytest.mark.parametrize("packing", PACKINGS)
def test_uploads_that_came_and_left_were_never_there(packing: Packing) -> None:
    # What counts is what arrived, rounded or not.
    parts = [sums_by_hand(part, 10) for part in dealt(pixels(200), 3, 0)]
    one, two, three = (Sums.of(part.tensors(packing)) for part in parts)
    assert_same_sums(one + two + three - two, one + three, within=1e-12)
    assert_same_sums(one + two + three - three - one, two, within=1e-12)


def test_nobody_changes_nothing() -> None:
    for edge, data in EDGES.items():
        found = sums_by_hand(data, CLASSES)
        nobody = Sums.none(CLASSES, data.features.shape[1])
        assert nobody.total == 0
        assert not nobody.mean.any()
        with case(edge):
            for same in (found + nobody, nobody + found, found - nobody):
                assert_same_sums(same, found, within=0)
            assert_same_sums(nobody + nobody - nobody, nobody, within=0)


def test_when_all_have_left_there_is_nothing() -> None:
    for edge, data in EDGES.items():
        found = sums_by_hand(data, CLASSES)
        empty = (found + found) - found - found
        with case(edge):
            assert_same_sums(empty, Sums.none(CLASSES, found.sums.shape[1]), within=0)


def test_edges_add_up_and_come_apart() -> None:
    for edge, data in EDGES.items():
        found = sums_by_hand(data, CLASSES)
        twice = Data(np.concatenate([data.features] * 2), np.concatenate([data.labels] * 2))
        with case(edge):
            assert_same_sums(found + found, sums_by_hand(twice, CLASSES))
            assert_same_sums((found + found) - found, found, within=1e-8)


def test_a_class_whose_holders_have_all_left_has_no_sum() -> None:
    # 0.1 + 0.2 + 0.3 in binary is not what is taken away again.
    rows = [Data(np.array([[value]]), np.array([0])) for value in (0.1, 0.2, 0.3)]
    stays = sums_by_hand(Data(np.array([[7.0], [8.0]]), np.array([1, 1])), 2)
    one, two, three = (sums_by_hand(row, 2) for row in rows)
    left = stays + one + two + three - one - two - three
    assert left.counts.tolist() == [0, 2]
    assert left.sums[0].item() == 0
    check_sums(left.tensors("float32"), "what is left")


def test_one_image_that_is_left_has_no_scatter() -> None:
    data = made_up(0, 40, 3, CLASSES)
    left = sums_by_hand(data, CLASSES) - sums_by_hand(data.take(np.arange(39)), CLASSES)
    assert left.total == 1
    assert not left.scatter.any()


@pytest.mark.parametrize("counts", [[1, 0], [0, 3], [4, 2]])
def test_taking_away_what_was_never_there_is_refused(counts: list[int]) -> None:
    def of(*counts: int) -> Sums:
        nothing = Sums.none(2, 1)
        return Sums(torch.tensor(counts), nothing.sums, nothing.scatter)

    with pytest.raises(AccordError, match="never added"):
        of(0, 2) - of(*counts)
