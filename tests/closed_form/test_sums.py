"""Sums of features: they add up, they can be taken away, and they survive every packing."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.closed_form.sums import PACKINGS, Packing, Sums, check_sums, expected_sums
from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from closed_forms import Data, assert_same_sums, dealt, furthest, made_up, pixels, sums_by_hand

CLASSES = 3
seeds = st.integers(0, 10_000)
widths = st.integers(1, 8)

EDGES: dict[str, Data] = {
    "one image": Data(np.array([[3.0, -2.0]]), np.array([1])),
    "one feature": made_up(0, 9, 1, CLASSES),
    "one feature of one image": Data(np.array([[5.0]]), np.array([2])),
    "one class": Data(made_up(1, 9, 4, 1).features, np.full(9, 1)),
    "the same image": Data(np.full((7, 3), 0.5), np.array([0, 0, 1, 2, 2, 2, 2])),
    "a feature that never changes": Data(
        made_up(2, 9, 4, CLASSES).features * [1, 0, 1, 1] + [0, 0.7, 0, 0], np.arange(9) % 3
    ),
    "two features that are one": Data(np.outer(np.arange(6.0), [1, 1]), np.arange(6) % 3),
    "more features than images": made_up(3, 4, 12, CLASSES),
    "large numbers": Data(1e6 * made_up(4, 9, 4, CLASSES).features, np.arange(9) % 3),
    "small numbers": Data(1e-6 * made_up(5, 9, 4, CLASSES).features, np.arange(9) % 3),
}


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


@pytest.mark.parametrize("edge", EDGES)
def test_nobody_changes_nothing(edge: str) -> None:
    found = sums_by_hand(EDGES[edge], CLASSES)
    nobody = Sums.none(CLASSES, EDGES[edge].features.shape[1])
    assert nobody.total == 0
    assert not nobody.mean.any()
    for same in (found + nobody, nobody + found, found - nobody):
        assert_same_sums(same, found, within=0)
    assert_same_sums(nobody + nobody - nobody, nobody, within=0)


@pytest.mark.parametrize("edge", EDGES)
def test_when_all_have_left_there_is_nothing(edge: str) -> None:
    found = sums_by_hand(EDGES[edge], CLASSES)
    empty = (found + found) - found - found
    assert_same_sums(empty, Sums.none(CLASSES, found.sums.shape[1]), within=0)


@pytest.mark.parametrize("edge", EDGES)
def test_edges_add_up_and_come_apart(edge: str) -> None:
    data = EDGES[edge]
    found = sums_by_hand(data, CLASSES)
    twice = Data(np.concatenate([data.features] * 2), np.concatenate([data.labels] * 2))
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


# --- in a message ------------------------------------------------------------------------------


def correlations(scatter: Tensor) -> Tensor:
    spread = scatter.diagonal().sqrt()
    scale = torch.where(spread > 0, spread, 1.0)
    return scatter / scale / scale[:, None]


def assert_survives(data: Data, packing: Packing) -> None:
    """What comes out of a message is what went in, but for the packing's rounding."""
    sent = sums_by_hand(data, CLASSES)
    tensors = sent.tensors(packing)
    check_sums(tensors, "an honest client")
    found = Sums.of(tensors)
    assert found.counts.tolist() == sent.counts.tolist()
    torch.testing.assert_close(found.sums, sent.sums, rtol=1e-6, atol=1e-30)
    assert torch.equal(found.scatter, found.scatter.T)
    torch.testing.assert_close(
        found.scatter.diagonal(), sent.scatter.diagonal(), rtol=1e-6, atol=1e-30
    )
    if packing == "float32":
        torch.testing.assert_close(found.scatter, sent.scatter, rtol=1e-6, atol=1e-30)
    else:
        # In units of both spreads; off the diagonal, half a step of the rounding.
        within = {"float16": 2**-11, "int8": 0.5 / 127}[packing]
        spread = sent.scatter.diagonal().sqrt()
        allowed = (within + 1e-6) * spread * spread[:, None] + 1e-30
        assert bool(((found.scatter - sent.scatter).abs() <= allowed).all())


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("edge", EDGES)
def test_edges_survive_a_message(edge: str, packing: Packing) -> None:
    assert_survives(EDGES[edge], packing)


@settings(max_examples=50, deadline=None)
@given(seed=seeds, rows=st.integers(1, 20), width=widths, power=st.integers(-8, 8))
@pytest.mark.parametrize("packing", PACKINGS)
def test_any_sums_survive_a_message(
    packing: Packing, seed: int, rows: int, width: int, power: int
) -> None:
    features, labels = made_up(seed, rows, width, CLASSES)
    draws = numpy_generator(seed, "spoilt")
    features[:, draws.uniform(size=width) < 0.2] = 0.1  # some do not change
    features[draws.uniform(size=rows) < 0.3] = features[0]  # some images are the same
    assert_survives(Data(10.0**power * features, labels), packing)


def test_an_int8_correlation_is_a_whole_number_of_steps() -> None:
    # The second feature is 0.6 of the first and 0.8 of what has nothing to do with it: the
    # correlation is 0.6, 76.2 steps of 127.
    first, unrelated = np.array([1.0, 1.0, -1.0, -1.0]), np.array([1.0, -1.0, 1.0, -1.0])
    features = np.stack([first, 5 * (0.6 * first + 0.8 * unrelated)], axis=1)
    tensors = sums_by_hand(Data(features, np.zeros(4, dtype=np.int64)), 1).tensors("int8")
    assert tensors["scatter"].tolist() == [127, 76, 127]
    assert tensors["scatter_spread"].tolist() == pytest.approx([2, 10])
    expected = [[4, 20 * 76 / 127], [20 * 76 / 127, 100]]
    torch.testing.assert_close(Sums.of(tensors).scatter, torch.tensor(expected).double())


def test_the_upper_triangle_travels_row_by_row() -> None:
    found = sums_by_hand(made_up(0, 9, 3, CLASSES), CLASSES)
    S = found.scatter
    expected = [S[0, 0], S[0, 1], S[0, 2], S[1, 1], S[1, 2], S[2, 2]]
    assert found.tensors("float32")["scatter"].tolist() == pytest.approx(
        [float(value) for value in expected], rel=1e-6
    )


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize(("classes", "width"), [(1, 1), (2, 1), (3, 5), (10, 64)])
def test_a_message_is_as_expected(classes: int, width: int, packing: Packing) -> None:
    found = sums_by_hand(made_up(0, 20, width, classes), classes).tensors(packing)
    expected = expected_sums(classes, width, packing)
    assert found.keys() == expected.keys()
    for name, tensor in expected.items():
        assert found[name].shape == tensor.shape, name
        assert found[name].dtype == tensor.dtype, name


@pytest.mark.parametrize("packing", PACKINGS)
def test_nobody_survives_a_message(packing: Packing) -> None:
    tensors = Sums.none(CLASSES, 4).tensors(packing)
    check_sums(tensors, "nobody")
    assert_same_sums(Sums.of(tensors), Sums.none(CLASSES, 4), within=0)


@pytest.mark.parametrize("packing", PACKINGS)
def test_real_images_survive_a_message(packing: Packing) -> None:
    sent = sums_by_hand(pixels(300), 10)
    assert not sent.scatter.diagonal().all()  # some pixels never change
    tensors = sent.tensors(packing)
    check_sums(tensors, "digits")
    found = Sums.of(tensors)
    within = {"float32": 1e-6, "float16": 1e-3, "int8": 1 / 127}[packing]
    assert furthest(correlations(found.scatter), correlations(sent.scatter)) <= within
    assert not found.scatter[sent.scatter == 0].any()


@pytest.mark.parametrize("packing", PACKINGS)
def test_a_scatter_summed_in_float32_is_accepted(packing: Packing) -> None:
    # As a client does it: product in float32, features that hardly change beside others.
    features, labels = pixels(200)
    x = torch.from_numpy(np.hstack([features, 1e-5 * features[:, ::-1], 3 + 1e-6 * features]))
    x = x.float()
    centred = x - x.double().mean(dim=0).float()
    honest = Sums(
        torch.bincount(torch.from_numpy(labels), minlength=10),
        torch.zeros(10, x.shape[1], dtype=torch.float64).index_add_(
            0, torch.from_numpy(labels), x.double()
        ),
        (centred.T @ centred).double(),
    )
    check_sums(honest.tensors(packing), "digits")


# --- what no images could have given -----------------------------------------------------------


def honest(packing: Packing) -> dict[str, Tensor]:
    labels = np.array([0, 0, 1, 1, 1, 0], dtype=np.int64)  # nothing of class 2
    return sums_by_hand(Data(made_up(0, 6, 3, 1).features, labels), CLASSES).tensors(packing)


@pytest.mark.parametrize("packing", PACKINGS)
def test_sums_of_a_class_without_images_are_refused(packing: Packing) -> None:
    tensors = honest(packing)
    check_sums(tensors, "client 7")
    tensors["feature_sums"][2, 1] = 1e-3
    with pytest.raises(AccordError, match="client 7: it sums features of a class"):
        check_sums(tensors, "client 7")


def test_a_scatter_below_zero_is_refused() -> None:
    tensors = honest("float32")
    tensors["scatter"][0] = -tensors["scatter"][0]
    with pytest.raises(AccordError, match=r"client 7: .* below 0"):
        check_sums(tensors, "client 7")


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize("packing", ["float32", "float16"])
def test_a_correlation_beyond_one_is_refused(packing: Packing, sign: int) -> None:
    tensors = honest(packing)
    S = Sums.of(tensors).scatter
    bound = float((S[0, 0] * S[1, 1]).sqrt()) if packing == "float32" else 1.0
    tensors["scatter"][1] = sign * 1.05 * bound
    with pytest.raises(AccordError, match=r"client 7: .* correlated by more than 1"):
        check_sums(tensors, "client 7")


def test_a_feature_that_never_changes_cannot_change_with_another() -> None:
    tensors = sums_by_hand(EDGES["a feature that never changes"], CLASSES).tensors("float32")
    check_sums(tensors, "client 7")
    tensors["scatter"][1] = 1e-3
    with pytest.raises(AccordError, match="correlated by more than 1"):
        check_sums(tensors, "client 7")


# --- sums that look right one by one ------------------------------------------------------------


def test_classes_further_apart_than_the_scatter_are_refused() -> None:
    tensors = honest("float32")
    tensors["scatter"] = tensors["scatter"] * 0.0
    with pytest.raises(AccordError, match="client 7: its classes lie further apart"):
        check_sums(tensors, "client 7")
    tensors = honest("float32")
    tensors["feature_sums"][0] += 1e30
    with pytest.raises(AccordError, match="client 7: its classes lie further apart"):
        check_sums(tensors, "client 7")


@pytest.mark.parametrize("packing", ["float32", "float16"])
def test_three_features_that_all_contradict_each_other_are_refused(packing: Packing) -> None:
    # Each pair may be anticorrelated; three cannot all be.
    tensors = honest(packing)
    spread = Sums.of(tensors).scatter.diagonal().sqrt()
    width = len(spread)
    against = 2 * torch.eye(width).double() - 1
    if packing == "float32":
        against = against * spread * spread[:, None]
    upper = torch.triu_indices(width, width)
    tensors["scatter"] = against[upper[0], upper[1]].to(tensors["scatter"].dtype)
    with pytest.raises(AccordError, match="client 7: some mix of features has a scatter below 0"):
        check_sums(tensors, "client 7")


@pytest.mark.parametrize("packing", PACKINGS)
@pytest.mark.parametrize("rows", [1, 2, 7, 40])
def test_honest_sums_of_few_images_pass(rows: int, packing: Packing) -> None:
    for seed in range(5):
        data = made_up(seed, rows, 60, CLASSES)
        check_sums(sums_by_hand(data, CLASSES).tensors(packing), "client 7")
        digits = pixels(rows)
        check_sums(sums_by_hand(digits, 10).tensors(packing), "client 7")
