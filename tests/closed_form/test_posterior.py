"""Fisher's rule on the scores: scikit-learn's; rare classes are found, absent ones never said."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from accord.closed_form.packing import PACKINGS, Packing
from accord.closed_form.posterior import NEVER, Moments, Prior, excesses, log_probabilities
from accord.closed_form.ridge import Ridge, solve
from accord.closed_form.sums import Sums
from accord.core.metrics import Tally
from accord.core.randomness import numpy_generator
from closed_forms import Data, Floats, Ints, made_up, pixels, sums_by_hand
from core.cases import case, looped


def told(train: Data, classes: int, features: Floats, prior: Prior = "uniform") -> torch.Tensor:
    """ln p(c | φ) + const of some images, from the sums of others."""
    sums = sums_by_hand(train, classes)
    weights, bias = log_probabilities(solve(sums), sums.counts, prior)
    return torch.from_numpy(features) @ weights.T + bias


def test_by_hand() -> None:
    # One score counts: class means −1 and 2, variance 1/4 (and 10⁻⁶ + 10⁻³/8 for safety).
    means = torch.tensor([[-1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    within = torch.tensor([[0.25, 0.0], [0.0, 0.0]], dtype=torch.float64)
    ridge = Ridge(torch.eye(2).double(), torch.zeros(2).double(), 1.0, 1.0, 9.0, means, within)
    counts = torch.tensor([3 * 10**9, 10**9])  # so many that all is known
    variance = 0.25 + 1e-6 + 1e-3 * 0.125
    weights, bias = log_probabilities(ridge, counts, "uniform")
    assert weights[:, 0].tolist() == pytest.approx([-1.5 / variance, 1.5 / variance])
    assert bias.tolist() == pytest.approx([0.75 / variance, -0.75 / variance])
    _, prior = log_probabilities(ridge, counts, "data")
    assert (prior - bias).tolist() == pytest.approx([np.log(3) / 2, -np.log(3) / 2])


@looped("prior", ["uniform", "data"])
@looped("seed", range(3))
def test_it_is_scikit_learns_rule_on_the_scores_left_out(seed: int, prior: Prior) -> None:
    classes = 4
    data = made_up(seed, 3_000, 6, classes)
    sums = sums_by_hand(data, classes)
    found = solve(sums)
    h, Y = found.freedom / 3_000, np.eye(classes)[data.labels]
    in_sample = data.features @ found.weights.numpy().T + found.bias.numpy()
    out = (in_sample - h * Y) / (1 - h)
    shares = sums.counts.double().numpy() / 3_000
    # Scores sum to 1, so that all but one say everything.
    oracle = LinearDiscriminantAnalysis(solver="lsqr", priors=shares).fit(out[:, 1:], data.labels)
    expected = oracle.decision_function(in_sample[:, 1:])
    if prior == "uniform":
        expected = expected - np.log(shares)
    weights, bias = log_probabilities(found, sums.counts, prior)
    said = data.features @ weights.numpy().T + bias.numpy()
    said, expected = (one - one.mean(axis=1, keepdims=True) for one in (said, expected))
    beta = (said * expected).sum() / (expected**2).sum()  # see temperature.py
    assert 0.5 < beta <= 1.02
    np.testing.assert_allclose(said / beta, expected, rtol=0.02, atol=0.02 * np.abs(expected).std())


@looped("packing", PACKINGS)
@looped("seed", range(3))
def test_classes_that_are_easy_to_separate_survive_rounding(seed: int, packing: Packing) -> None:
    """Within the classes, the scores vary less than what is rounded: V must stay positive."""
    rng, classes = numpy_generator(seed, "easy"), 10
    labels = np.arange(200) % classes
    features = 3 * np.eye(classes)[labels].repeat(30, axis=1) + 0.05 * rng.normal(size=(200, 300))
    exact = sums_by_hand(Data(features, labels), classes)
    sums = Sums.of(exact.tensors(packing))
    found = solve(sums)
    assert float(torch.linalg.eigvalsh(found.within)[0]) > -1e-12
    weights, bias = log_probabilities(found, sums.counts, "uniform")
    said = features @ weights.numpy().T + bias.numpy()
    assert (said.argmax(axis=1) == labels).all()


def test_few_images_draw_moments_towards_the_labels_by_hand() -> None:
    """(1 − h²)(1 − C/n) of m and V are trusted; h = 4/8, C = 2 of 3 classes are there, n = 8."""
    means = torch.tensor([[0.9, 0.1, 0.0], [0.3, 0.7, 0.0], [0.4, 0.6, 0.0]]).double()
    within = torch.diag(torch.tensor([0.04, 0.09, 0.01]).double())
    ridge = Ridge(torch.eye(3).double(), torch.zeros(3).double(), 1.0, 4.0, 0.25, means, within)
    counts = torch.tensor([6, 2, 0])
    known = (1 - 0.5**2) * (1 - 2 / 8)
    m = known * means + (1 - known) * torch.eye(3)
    V = known * within.diagonal() + (1 - known) * 0.25
    V = V + 1e-6 + 1e-3 * V.mean()
    A = m / V
    constant = -(A * m).sum(dim=1) / 2
    for prior in ("uniform", "data"):
        if prior == "data":
            constant = constant + torch.tensor([6, 2, 1]).double().log()
        weights, bias = log_probabilities(ridge, counts, prior)
        apart, expected = weights[0] - weights[1], A[0] - A[1]
        beta = float((apart * expected).sum() / expected.square().sum())  # see temperature.py
        assert 0.01 <= beta <= 1
        torch.testing.assert_close(apart, beta * expected)
        told = float(bias[0] - bias[1])
        assert told == pytest.approx(beta * float(constant[0] - constant[1]), rel=1e-5)
        # All scores together say nothing: what classes have in common is taken off.
        shift = (A @ torch.eye(3).double()).mean(dim=0)
        torch.testing.assert_close(weights[0], beta * (A[0] - shift))
        # The class that nobody holds follows the most frequent one, e²⁰ times less likely.
        torch.testing.assert_close(weights[2], weights[0])
        assert float(bias[0] - bias[2]) == pytest.approx(20)


def uneven_digits() -> tuple[Data, Data]:
    """A tenth of the digits 0 to 4 to learn from, and the others of these to find."""
    everything = pixels(1_700)
    rare = (everything.labels < 5) & (np.arange(1_700) % 10 > 0)
    return everything.take(~rare), everything.take(rare)


def test_rare_classes_are_found_when_all_are_as_likely() -> None:
    train, test = uneven_digits()

    def found(prior: Prior) -> float:
        said = told(train, 10, test.features, prior).argmax(dim=1).numpy()
        return float((said == test.labels).mean())

    sums = sums_by_hand(train, 10)
    plain = solve(sums)
    scores = torch.from_numpy(test.features) @ plain.weights.T + plain.bias
    assert found("uniform") > found("data")
    assert found("data") > (scores.argmax(dim=1).numpy() == test.labels).mean() + 0.05


def test_it_is_as_sure_as_it_is_right() -> None:
    everything = pixels(1_700)
    train, test = everything.take(np.arange(800)), everything.take(np.arange(800, 1_700))
    found = told(train, 10, test.features)
    metrics = Tally.of(found.float(), torch.from_numpy(test.labels), 10).metrics()
    assert metrics.accuracy > 0.9
    assert metrics.ece < 0.03


def digit_pairs(seed: int, images: int, first: int, last: int) -> Data:
    """100 classes: two real digits side by side, both from digit `first` to digit `last`."""
    (features, labels), draws = pixels(1_797), numpy_generator(seed, "pairs")
    left, right = draws.integers(first, last, (2, images))
    return Data(np.hstack([features[left], features[right]]), labels[left] * 10 + labels[right])


def test_with_many_classes_it_is_as_sure_as_it_is_right() -> None:
    """With a multiple of M_c in place of its ratio to M, the ECE is 12 %."""
    train, test = digit_pairs(0, 5_000, 0, 900), digit_pairs(1, 3_000, 900, 1_797)
    said = told(train, 100, test.features)
    metrics = Tally.of(said, torch.from_numpy(test.labels), 100).metrics()
    assert metrics.accuracy > 0.8
    assert metrics.ece < 0.06
    # With 20 images of each class and much noise, the ECE is 10 % if `excesses` are left out.
    draws = numpy_generator(0, "noise")
    train, test = (
        Data(some.features + draws.normal(size=some.features.shape), some.labels)
        for some in (train.take(np.arange(2_000)), test)
    )
    said = told(train, 100, test.features)
    metrics = Tally.of(said, torch.from_numpy(test.labels), 100).metrics()
    assert 0.05 < metrics.accuracy < 0.12
    assert metrics.ece < 0.07


@looped("known", [1.0, 0.7])
def test_unseen_images_do_not_follow_the_noise_of_a_class_mean(known: float) -> None:
    """The mean over 2,000 draws of 5 and 20 images of a class, of four scores."""
    draws = numpy_generator(0, "excess")
    mixed = draws.normal(size=(4, 4)) * 0.2
    within, truth = mixed @ mixed.T, np.array([0.6, 0.2, 0.1, 0.1])
    own, target = torch.zeros(4, 4).double(), np.eye(4)[0]
    moments = Moments(known, own, torch.from_numpy(known * within + (1 - known) * 0.3 * np.eye(4)))
    inverse = np.linalg.inv(moments.raised.numpy())
    for images, expected in zip(
        (5, 20), excesses(moments, torch.from_numpy(within), torch.tensor([5, 20])), strict=True
    ):
        noise = draws.multivariate_normal(np.zeros(4), within, (2_000, images)).mean(axis=1)
        m = known * (truth + noise) + (1 - known) * target
        unseen = known * truth + (1 - known) * target
        gaps = ((m - unseen) @ inverse * m).sum(axis=1)
        assert gaps.mean() == pytest.approx(float(expected), abs=4 * gaps.std() / 2_000**0.5)
        assert 4 * gaps.std() / 2_000**0.5 < float(expected)


@settings(deadline=None, max_examples=15)
@given(st.integers(0, 10_000), st.sampled_from(["uniform", "data"]), st.integers(2, 12))
def test_the_temperature_changes_no_answer_and_depends_on_no_order(
    seed: int, prior: Prior, classes: int
) -> None:
    data, fresh = made_up(seed, 40 * classes, 6, classes), made_up(seed + 1, 50, 6, classes)
    sums = sums_by_hand(data, classes)
    found = solve(sums)
    weights, bias = log_probabilities(found, sums.counts, prior)
    moments = Moments.of(found, sums.counts)
    A = torch.linalg.solve(moments.raised, moments.means.T).T
    constant = -(A * moments.means).sum(dim=1) / 2
    if prior == "data":
        constant = constant + sums.counts.double().log()
    plain = A @ found.weights - (A @ found.weights).mean(dim=0)
    beta = float((weights * plain).sum() / plain.square().sum())
    assert 0.01 <= beta <= 1 + 1e-9
    scores = torch.from_numpy(fresh.features)
    said = scores @ weights.T + bias
    expected = beta * (scores @ plain.T + A @ found.bias + constant)
    torch.testing.assert_close(*(rows - rows.mean(dim=1)[:, None] for rows in (said, expected)))
    order = numpy_generator(seed, "order").permutation(classes)  # class order[k] becomes class k
    other = sums_by_hand(Data(data.features, np.argsort(order)[data.labels]), classes)
    turned, _ = log_probabilities(solve(other), other.counts, prior)
    # Another order of the classes has other random draws.
    torch.testing.assert_close(turned, weights[order], rtol=0.05, atol=float(weights.std()) * 0.05)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.integers(0, 3), st.sampled_from(["uniform", "data"]))
def test_a_class_that_nobody_holds_is_never_the_answer(
    seed: int, absent: int, prior: Prior
) -> None:
    data = made_up(seed, 60, 5, 4)
    data = data.take(data.labels != absent)
    fresh = 10 * made_up(seed + 1, 50, 5, 4).features
    said = told(data, 4, fresh, prior)
    assert said.isfinite().all()
    assert not (said.argmax(dim=1) == absent).any()
    most = int(np.bincount(data.labels, minlength=4).argmax())
    torch.testing.assert_close(said[:, absent], said[:, most] - NEVER)


@looped("labels", [[2], [1, 1, 1], [0, 1], [0, 1, 2, 3]])
def test_few_images_give_finite_answers(labels: list[int]) -> None:
    train = Data(np.eye(4)[labels] + np.arange(4), np.array(labels))
    said = told(train, 4, train.features)
    assert said.isfinite().all()
    assert set(said.argmax(dim=1).tolist()) <= set(labels)


def test_images_all_alike_have_every_class_as_likely_as_it_is() -> None:
    train = Data(np.ones((4, 3)), np.array([0, 0, 0, 1]))
    said = told(train, 2, np.ones((1, 3)), "data").softmax(dim=1)
    assert said[0].tolist() == pytest.approx([0.75, 0.25])


@pytest.mark.parametrize("penalty", [None, 1e-6, 1e-2])
def test_few_images_are_told_apart_as_well_as_by_scores(penalty: float | None) -> None:
    # 256 features: all that an image's score tells may be its own label.
    plain, labels = pixels(1_200)
    features = np.hstack([plain, plain**2, np.sqrt(plain), np.tanh(3 * plain)])
    for images in (2, 5, 10, 15, 20, 30, 50, 100, 200):
        with case(images):
            assert_told_apart(features, labels, images, penalty)


def assert_told_apart(features: Floats, labels: Ints, images: int, penalty: float | None) -> None:
    sums = sums_by_hand(Data(features[:images], labels[:images]), 10)
    found = solve(sums, penalty)
    weights, bias = log_probabilities(found, sums.counts, "uniform")
    test = torch.from_numpy(features[400:])

    def accuracy(scores: torch.Tensor) -> float:
        return float((scores.float().argmax(dim=1).numpy() == labels[400:]).mean())

    raw = accuracy(test @ found.weights.T + found.bias)
    assert accuracy(test @ weights.T + bias) >= raw - 0.03
    assert (weights.abs().max() * test.abs().max()) < 1e5  # float32 has digits left
