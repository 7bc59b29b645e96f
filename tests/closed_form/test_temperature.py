"""One temperature makes linear scores as sure as they are right, from class moments alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.linalg import fractional_matrix_power
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from accord.closed_form.temperature import (
    DRAWS,
    FEWEST,
    LEAST,
    Ratios,
    correlation,
    drawn_scores,
    power,
    sureness,
)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000), st.floats(0.2, 5.0))
def test_it_is_scipys_optimum(seed: int, scale: float) -> None:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 3, 200)
    logits = scale * (np.eye(3)[labels] + rng.normal(0, 0.7, (200, 3)))
    worth = rng.uniform(0.5, 2, 200)

    def loss(beta: float) -> float:
        return -float((worth * log_softmax(beta * logits, axis=1)[range(200), labels]).sum())

    best = minimize_scalar(loss, bounds=(LEAST, 1.0), method="bounded", options={"xatol": 1e-9}).x
    found = sureness(torch.from_numpy(logits), torch.from_numpy(labels), torch.from_numpy(worth))
    assert loss(found) <= loss(best) + 1e-6
    assert found == pytest.approx(best, abs=1e-3)


def test_who_is_never_wrong_may_be_sure() -> None:
    logits = torch.eye(3) * 5
    assert sureness(logits, torch.arange(3), torch.ones(3)) == 1.0


def test_who_knows_nothing_is_not_sure_at_all() -> None:
    logits = torch.tensor([[3.0, 0.0], [0.0, 3.0]]).repeat(2, 1)
    found = sureness(logits, torch.tensor([0, 0, 1, 1]), torch.ones(4))
    assert found == pytest.approx(0.01, abs=1e-6) == pytest.approx(LEAST)


MEANS = torch.tensor([[0.7, 0.2, 0.1], [0.3, 0.75, -0.05], [0.1, 0.2, 0.7]], dtype=torch.float64)
WITHIN = torch.tensor([[0.05, -0.01, 0.0], [-0.01, 0.04, 0.01], [0.0, 0.01, 0.02]]).double()
PRIOR = torch.tensor([0.5, 0.25, 0.25], dtype=torch.float64)


def test_proportions_and_their_mean_covariance_by_hand() -> None:
    ratios = Ratios.of(MEANS, WITHIN, PRIOR)
    # A mean below 0 counts as 0, and the others are divided by their sum.
    shares = np.array([[0.7, 0.2, 0.1], [0.3 / 1.05, 0.75 / 1.05, 0], [0.1, 0.2, 0.7]])
    np.testing.assert_allclose(ratios.shares, shares)
    mean = sum(
        p * (np.diag(m) - np.outer(m, m)) for p, m in zip([0.5, 0.25, 0.25], shares, strict=True)
    )
    assert ratios.small == pytest.approx(1e-3 * np.trace(mean) / 3)
    np.testing.assert_allclose(ratios.mean, mean + ratios.small * np.eye(3))
    assert ratios.told == correlation(MEANS, WITHIN, PRIOR)


def covariances(ratios: Ratios) -> list[NDArray[np.float64]]:
    """V_c = V^½ (R M^-½ M_c M^-½ + (1 − R) I) V^½, by SciPy's powers of matrices."""
    root, turned = (
        np.real(fractional_matrix_power(matrix.numpy(), power))
        for matrix, power in ((WITHIN, 0.5), (ratios.mean, -0.5))
    )
    found = []
    for m in ratios.shares.numpy():
        own = turned @ (np.diag(m) - np.outer(m, m) + ratios.small * np.eye(3)) @ turned
        found.append(root @ (ratios.told * own + (1 - ratios.told) * np.eye(3)) @ root)
    return found


def test_scores_are_drawn_with_the_mean_and_covariance_of_their_class() -> None:
    ratios = Ratios.of(MEANS, WITHIN, PRIOR)
    expected = covariances(ratios)
    np.testing.assert_allclose(np.tensordot(PRIOR, expected, 1), WITHIN, atol=1e-12)
    for mean, V, scores in zip(MEANS, expected, drawn_scores(MEANS, WITHIN, ratios), strict=True):
        torch.testing.assert_close(scores.mean(dim=0), mean, atol=0.015, rtol=0)
        np.testing.assert_allclose(scores.T.cov(), V, atol=0.003)
    # The own score of the first class varies more than other classes' scores of it.
    assert expected[0][0, 0] > 1.3 * expected[2][0, 0]


def test_the_same_scores_are_drawn_again_and_at_least_a_few_of_each_class() -> None:
    ratios = Ratios.of(MEANS, WITHIN, PRIOR)
    one, other = (torch.cat(list(drawn_scores(MEANS, WITHIN, ratios))) for _ in range(2))
    assert torch.equal(one, other)
    assert len(one) == DRAWS // 3 * 3
    many = torch.eye(DRAWS // FEWEST + 1).double()
    ratios = Ratios.of(many, 1e-4 * many, many.mean(dim=0))
    assert len(next(drawn_scores(many, 1e-4 * many, ratios))) == FEWEST


def test_perfect_means_leave_the_common_covariance() -> None:
    """Proportions of 0 and 1 do not vary. All V_c are V then, and not 0."""
    own = torch.eye(3).double()
    ratios = Ratios.of(own, WITHIN, PRIOR)
    for scores in drawn_scores(own, WITHIN, ratios):
        torch.testing.assert_close(scores.T.cov(), WITHIN, atol=0.003, rtol=0)


def test_the_correlation_by_hand() -> None:
    means = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    within = torch.tensor([[0.03, 0.0], [0.0, 0.05]], dtype=torch.float64)
    prior = torch.tensor([0.25, 0.75], dtype=torch.float64)
    between = 0.25 * 2 * 0.3**2 + 0.75 * 2 * 0.1**2  # the mean is (0.5, 0.5)
    assert correlation(means, within, prior) == pytest.approx((between / (between + 0.08)) ** 0.5)
    assert correlation(0 * means, 0 * within, prior) == 0


@pytest.mark.parametrize("noise", [0.1, 0.5, 3.0])
def test_the_correlation_is_that_of_labels_and_scores(noise: float) -> None:
    """If all classes are equally separable, labels and scores explain each other equally well."""
    rng = np.random.default_rng(0)
    labels = np.arange(6_000) % 3
    Y = np.eye(3)[labels]
    features = np.column_stack([np.ones(6_000), Y + noise * rng.normal(size=(6_000, 3))])
    scores = features @ np.linalg.lstsq(features, Y, rcond=None)[0]
    means = np.stack([scores[labels == label].mean(axis=0) for label in range(3)])
    within = np.cov((scores - means[labels]).T, bias=True)
    expected = np.corrcoef((Y - 1 / 3).ravel(), (scores - 1 / 3).ravel())[0, 1]
    prior = torch.full((3,), 1 / 3).double()
    found = correlation(torch.from_numpy(means), torch.from_numpy(within), prior)
    assert found == pytest.approx(expected, abs=0.01)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10_000))
def test_powers_of_a_matrix_are_scipys(seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(6, 4))
    matrix = torch.from_numpy(rows.T @ rows)
    for exponent in (0.5, -0.5):
        expected = np.real(fractional_matrix_power(matrix.numpy(), exponent))
        np.testing.assert_allclose(power(matrix, exponent), expected, rtol=1e-6, atol=1e-8)


def test_rounding_below_0_has_a_root() -> None:
    assert power(torch.diag(torch.tensor([4.0, -1e-18]).double()), 0.5).isfinite().all()
