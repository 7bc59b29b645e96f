"""One temperature makes linear scores as sure as they are right, from class moments alone."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from accord.closed_form.temperature import (
    LEAST,
    class_covariances,
    correlation,
    drawn_scores,
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


def test_scores_vary_as_shares_as_far_as_they_tell_by_hand() -> None:
    means = torch.tensor([[0.8, 0.2], [0.4, 0.6]], dtype=torch.float64)
    within = torch.tensor([[0.03, 0.0], [0.0, 0.05]], dtype=torch.float64)
    prior = torch.tensor([0.25, 0.75], dtype=torch.float64)
    told = ((0.25 * 0.8 + 0.75 * 0.6 - 0.625) / 0.375) ** 0.5
    assert correlation(means, prior) == pytest.approx(told)
    covariance = class_covariances(means, within, prior)
    kappa = 0.08 / (0.25 * 0.32 + 0.75 * 0.48)
    shares = kappa * torch.tensor([[0.16, -0.16], [-0.16, 0.16]], dtype=torch.float64)
    torch.testing.assert_close(covariance(0), told * shares + (1 - told) * within)
    total = 0.25 * covariance(0).trace() + 0.75 * covariance(1).trace()
    assert float(total) == pytest.approx(0.08)


def test_means_beyond_0_and_1_count_as_shares_of_0_and_1() -> None:
    prior, within = torch.tensor([0.5, 0.5]).double(), torch.eye(2).double()
    beyond, inside = (
        class_covariances(torch.tensor(rows).double(), within, prior)
        for rows in ([[1.25, -0.25], [0.25, 0.75]], [[1.0, 0.0], [0.25, 0.75]])
    )
    told = correlation(torch.tensor([[1.25, -0.25], [0.25, 0.75]]).double(), prior)
    less = correlation(torch.tensor([[1.0, 0.0], [0.25, 0.75]]).double(), prior)
    for label in (0, 1):  # what is left when the part that is alike for all classes is taken off
        one = (beyond(label) - (1 - told) * within) / told
        other = (inside(label) - (1 - less) * within) / less
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("noise", [0.01, 0.5, 3.0])
def test_the_correlation_is_that_of_labels_and_scores(noise: float) -> None:
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 5_000)
    Y = np.eye(3)[labels]
    features = np.column_stack([np.ones(5_000), Y[:, :2] + noise * rng.normal(size=(5_000, 2))])
    scores = features @ np.linalg.lstsq(features, Y, rcond=None)[0]
    means = np.stack([scores[labels == label].mean(axis=0) for label in range(3)])
    expected = np.corrcoef((Y - Y.mean(axis=0)).ravel(), (scores - Y.mean(axis=0)).ravel())[0, 1]
    found = correlation(torch.from_numpy(means), torch.from_numpy(Y.mean(axis=0)))
    assert found == pytest.approx(expected, abs=1e-9)


def test_scores_are_drawn_as_they_are_said_to_be_and_always_the_same() -> None:
    means = torch.tensor([[0.7, 0.3], [0.1, 0.9]], dtype=torch.float64)
    spreads = [torch.eye(2).double() * 0.04, torch.tensor([[0.09, 0.03], [0.03, 0.02]]).double()]
    scores, labels = drawn_scores(means, spreads)
    again, _ = drawn_scores(means, spreads)
    assert torch.equal(scores, again)
    for label in (0, 1):
        some = scores[labels == label]
        torch.testing.assert_close(some.mean(dim=0), means[label], atol=0.02, rtol=0)
        torch.testing.assert_close(some.T.cov(), spreads[label], atol=0.005, rtol=0)
