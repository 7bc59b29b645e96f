"""The ridge solution from sums: scikit-learn's for a given λ, and the same for any partition."""

from __future__ import annotations

import math
from functools import reduce
from itertools import product
from operator import add

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import Ridge as SklearnRidge

from accord.closed_form.packing import PACKINGS, Packing
from accord.closed_form.ridge import solve
from accord.closed_form.sums import Sums
from closed_form.support import cross_validation, even, hat, one_hot, scores, usual_scatter
from closed_forms import Data, dealt, made_up, pixels, sums_by_hand
from core.cases import looped

seeds = st.integers(0, 10_000)


# --- a given λ ---------------------------------------------------------------------------------


def test_one_feature_by_hand() -> None:
    # φ = 0, 2, 4 of classes 0, 0, 1: μ = 2, S = 8, Σ(φ − μ)(y − ȳ) = −2 and 2.
    sums = sums_by_hand(Data(np.array([[0.0], [2.0], [4.0]]), np.array([0, 0, 1])), 2)
    found = solve(sums, 2.0)
    assert found.weights.flatten().tolist() == pytest.approx([-0.2, 0.2])
    assert found.bias.tolist() == pytest.approx([2 / 3 + 0.4, 1 / 3 - 0.4])
    assert found.freedom == pytest.approx(1 + 8 / 10)
    assert found.penalty == 2.0


@looped(("rows", "width"), [(40, 1), (40, 6), (12, 12), (10, 30), (2, 3)])
def test_the_solution_is_that_of_scikit_learn(rows: int, width: int) -> None:
    for seed, penalty in product(range(2), [1e-3, 1.0, 100.0, 1e5]):
        assert_is_that_of_scikit_learn(made_up(seed, rows, width, 4), penalty, (seed, penalty))


def assert_is_that_of_scikit_learn(data: Data, penalty: float, case: object) -> None:
    found = solve(sums_by_hand(data, 4), penalty)
    oracle = SklearnRidge(alpha=penalty, fit_intercept=True, solver="svd")
    oracle.fit(data.features, one_hot(data, 4))
    rows, width = data.features.shape
    fresh = made_up(7, rows + 5, width, 4).features
    pairs = {
        "weights": (found.weights.numpy(), oracle.coef_, np.abs(oracle.coef_).max()),
        "bias": (found.bias.numpy(), oracle.intercept_, 1 + np.abs(oracle.intercept_)),
        "scores": (scores(found, fresh), oracle.predict(fresh), np.abs(fresh).max()),
    }
    for name, (one, other, size) in pairs.items():
        assert (np.abs(one - other) <= 1e-6 * size).all(), (name, case)


@pytest.mark.parametrize("seed", range(3))
def test_two_classes_are_told_apart_in_fishers_direction(seed: int) -> None:
    data = made_up(seed, 60, 5, 2)
    weights = solve(sums_by_hand(data, 2), 1e-9).weights.numpy()
    fisher = LinearDiscriminantAnalysis(solver="svd").fit(*data).coef_[0]
    for row, sign in zip(weights, (-1, 1), strict=True):
        cosine = row @ fisher / np.linalg.norm(row) / np.linalg.norm(fisher)
        assert cosine == pytest.approx(sign, abs=1e-6)


@looped("penalty", [1e-2, 1.0, 30.0])
@looped(("rows", "width"), [(40, 6), (12, 12), (10, 30)])
def test_the_freedom_is_the_trace_of_the_hat_matrix(rows: int, width: int, penalty: float) -> None:
    data = made_up(0, rows, width, 3)
    found = solve(sums_by_hand(data, 3), penalty)
    assert found.freedom == pytest.approx(np.trace(hat(data, penalty)), rel=1e-6)


# --- images that were left out -----------------------------------------------------------------


@looped("penalty", [1.0, 30.0])
@looped(("rows", "width"), [(60, 5), (40, 60)])
def test_unseen_images_score_as_those_left_out(rows: int, width: int, penalty: float) -> None:
    data = even(0, rows, width)
    found = solve(sums_by_hand(data, 4), penalty)  # of the fourth class there is no image
    h, Y = found.freedom / rows, one_hot(data, 4)
    out = (scores(found, data.features) - h * Y) / (1 - h)
    within = np.zeros((4, 4))
    for label in range(3):
        of = out[data.labels == label]
        np.testing.assert_allclose(found.means[label], of.mean(axis=0), atol=1e-9)
        within += (of - of.mean(axis=0)).T @ (of - of.mean(axis=0)) / rows
    np.testing.assert_allclose(found.within, within, atol=1e-9)
    # And so they miss by what cross-validation says.
    missed = ((Y - out) ** 2).sum() / rows
    assert missed == pytest.approx(cross_validation(data, 4, penalty), rel=1e-6)
    assert found.variance == pytest.approx(missed / 4, rel=1e-6)  # per class
    # Scores of the class without images are what is expected of any image: the prior.
    np.testing.assert_allclose(
        found.means[3] * (1 - h), np.bincount(data.labels, minlength=4) / rows - h * np.eye(4)[3]
    )


def test_the_share_that_is_done_grows_to_one() -> None:
    heard: list[float] = []
    solve(sums_by_hand(made_up(0, 30, 4, 3), 3), tell=heard.append)
    assert heard == sorted(heard)
    assert heard[0] > 0
    assert heard[-1] == pytest.approx(1)


# --- whatever the images -----------------------------------------------------------------------


@looped("packing", PACKINGS)
@looped(("rows", "width"), [(20, 5), (5, 20)])
def test_one_class_is_always_the_answer(rows: int, width: int, packing: Packing) -> None:
    data = Data(made_up(0, rows, width, 1).features, np.full(rows, 2))
    found = solve(Sums.of(sums_by_hand(data, 4).tensors(packing)))
    told = scores(found, 3 * data.features)
    np.testing.assert_allclose(told, [[0, 0, 1, 0]] * rows, atol=1e-6)


@looped("rows", [1, 5])
@looped("packing", PACKINGS)
def test_images_that_are_all_alike_give_the_prior(rows: int, packing: Packing) -> None:
    labels = np.arange(rows) % 2
    sums = Sums.of(sums_by_hand(Data(np.full((rows, 3), 0.1), labels), 3).tensors(packing))
    for penalty in (None, 0.5):
        found = solve(sums, penalty)
        assert not found.weights.any()
        expected = np.bincount(labels, minlength=3) / rows
        np.testing.assert_allclose(scores(found, np.eye(3)), [expected] * 3, atol=1e-12)
        assert found.freedom == 1
        np.testing.assert_allclose(found.means, [expected] * 3, atol=1e-12)
        assert not found.within.any()
        assert found.variance == pytest.approx((expected * (1 - expected)).sum() / 3)


def test_alike_images_of_several_clients_give_the_prior() -> None:
    # Their means differ by rounding alone; nothing may be read from that.
    parts = [Data(np.full((rows, 3), 0.1), np.full(rows, k)) for k, rows in enumerate((7, 11, 13))]
    found = solve(reduce(add, (Sums.of(sums_by_hand(p, 3).tensors("float32")) for p in parts)))
    seen = scores(found, np.full((1, 3), 0.1))
    np.testing.assert_allclose(seen, [[7 / 31, 11 / 31, 13 / 31]], atol=1e-4)
    np.testing.assert_allclose(scores(found, np.full((1, 3), 0.2)), seen, atol=0.1)


def test_one_image_that_is_left_is_solved_as_one_image() -> None:
    data = made_up(0, 40, 6, 3)
    left = sums_by_hand(data, 3) - sums_by_hand(data.take(np.arange(39)), 3)
    found = solve(left)
    expected = np.eye(3)[data.labels[39]]
    np.testing.assert_allclose(scores(found, data.features), [expected] * 40, atol=1e-6)


def test_features_that_never_change_weigh_nothing() -> None:
    features, labels = made_up(0, 30, 4, 3)
    with_constants = Data(np.insert(features, [0, 2], [[7.0, 0.0]], axis=1), labels)
    found = solve(sums_by_hand(with_constants, 3))
    assert found.weights[:, [0, 3]].abs().max() < 1e-9
    # A mean scatter over more features is smaller, so that it is another grid of λ.
    plain = solve(sums_by_hand(Data(features, labels), 3), found.penalty)
    np.testing.assert_allclose(
        scores(found, with_constants.features), scores(plain, features), atol=1e-6
    )


@settings(max_examples=30, deadline=None)
@given(seed=seeds, rows=st.integers(2, 40), width=st.integers(1, 6))
def test_scores_add_up_to_one_and_a_class_nobody_holds_is_never_the_answer(
    seed: int, rows: int, width: int
) -> None:
    features, labels = made_up(seed, rows, width, 3)
    data = Data(features, np.array([0, 2, 3])[labels])  # of classes 0 to 4
    found = solve(sums_by_hand(data, 5))
    told = scores(found, made_up(seed, rows + 1, width, 3).features)
    size = float(found.weights.abs().max()) * np.abs(features).max() + 1
    np.testing.assert_allclose(told.sum(axis=1), 1, atol=1e-9 * size)
    np.testing.assert_allclose(told[:, [1, 4]], 0, atol=1e-9 * size)
    assert not np.isin(told.argmax(axis=1), [1, 4]).any()


# --- exact algebra -----------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    rows=st.integers(2, 40),
    width=st.integers(1, 8),
    clients=st.integers(1, 8),
    relative=st.floats(1e-2, 10),
)
@example(seed=120, rows=2, width=1, clients=1, relative=0.25)
def test_any_partition_gives_the_pooled_scores(
    seed: int, rows: int, width: int, clients: int, relative: float
) -> None:
    data = made_up(seed, rows, width, 3)
    pooled = sums_by_hand(data, 3)
    uploads = [sums_by_hand(part, 3).tensors("float32") for part in dealt(data, clients, seed)]
    total = reduce(add, map(Sums.of, uploads))
    penalty = relative * usual_scatter(pooled)
    solution = solve(pooled, penalty)
    found, expected = (scores(one, data.features) for one in (solve(total, penalty), solution))
    # Sums arrive in float32, which shows where features vary far less than they are large.
    size = float(solution.weights.abs().max()) * np.abs(data.features).max()
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 + 1e-6 * size)


@pytest.mark.parametrize("clients", [2, 5, 60])
def test_any_partition_of_real_images_gives_the_pooled_answers(clients: int) -> None:
    data = pixels(600)
    train, test = data.take(np.arange(500)), data.features[500:]
    expected = solve(sums_by_hand(train, 10))
    order = np.argsort(train.labels, kind="stable")  # class after class: as skewed as can be
    parts = [train.take(rows) for rows in np.array_split(order, clients)]
    uploads = [sums_by_hand(part, 10).tensors("float32") for part in parts]
    found = solve(reduce(add, map(Sums.of, uploads)))
    assert math.log(found.penalty) == pytest.approx(math.log(expected.penalty), abs=1e-4)
    np.testing.assert_allclose(scores(found, test), scores(expected, test), rtol=0, atol=1e-4)
    assert (scores(expected, test).argmax(axis=1) == data.labels[500:]).mean() > 0.7


def test_who_left_has_no_part_in_the_answer() -> None:
    parts = [sums_by_hand(part, 10).tensors("float32") for part in dealt(pixels(400), 4, 0)]
    one, two, three, four = map(Sums.of, parts)
    found, expected = solve(one + two + three + four - two), solve(one + three + four)
    test = pixels(500).features[400:]
    np.testing.assert_allclose(scores(found, test), scores(expected, test), rtol=0, atol=1e-8)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(4, 40), width=st.integers(1, 8))
def test_other_names_for_the_classes_only_reorder_the_answer(
    seed: int, rows: int, width: int
) -> None:
    data = made_up(seed, rows, width, 4)
    order = np.random.default_rng(seed).permutation(4)
    renamed = Data(data.features, order[data.labels])
    penalty = 0.1 * usual_scatter(sums_by_hand(data, 4))
    found, expected = (solve(sums_by_hand(one, 4), penalty) for one in (renamed, data))
    torch.testing.assert_close(found.weights[order], expected.weights, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(found.bias[order], expected.bias, rtol=1e-9, atol=1e-9)
    assert found.freedom == pytest.approx(expected.freedom)
