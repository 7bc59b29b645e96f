"""Correlation alignment to the bank, by hand and against the covariances of NumPy and torch."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.client.batches import class_shares
from accord.core.errors import AccordError
from accord.objective.coral import CorrelationAlignment
from accord.objective.mmd import MaximumMeanDiscrepancy
from accord.objective.negatives import Rows
from core.cases import looped
from objective.support import (
    batch_of,
    labels_of,
    noise,
    reference_of,
    rows_of,
    value_and_gradient,
)

CORAL = CorrelationAlignment()
SHARES = [0.5, 0.3, 0.2, 0.0]
seeds = st.integers(0, 10_000)


# --- value ---------------------------------------------------------------------------------------


def test_coral_by_hand() -> None:
    # The batch varies by 1 along x; the bank by ¼ along both, against each other. The gap is
    # ((¾, ¼), (¼, −¼)), its squares sum to ¾.
    bank = Rows(torch.eye(2, dtype=torch.float64), torch.tensor([0, 0]))
    features = torch.tensor([[2.0, 0.0], [-5.0, 0.0]], dtype=torch.float64)
    found = CORAL(batch_of(features, torch.tensor([0, 0]), reference=reference_of(bank, [1.0])))
    assert found.item() == pytest.approx(0.75 / 4, abs=1e-12)


def test_a_rare_class_by_hand() -> None:
    # A batch that does not vary; the bank, ¾ and ¼ of it at two corners, by 3/16 each way.
    bank = Rows(torch.eye(2, dtype=torch.float64), torch.tensor([0, 1]))
    features = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    client = reference_of(bank, [0.75, 0.25])
    found = CORAL(batch_of(features, torch.tensor([0, 0]), reference=client))
    assert found.item() == pytest.approx(4 * (3 / 16) ** 2 / 4, abs=1e-12)


@pytest.mark.parametrize("width", [2, 5, 64])
def test_coral_is_the_papers_for_features_of_length_root_d(width: int) -> None:
    """‖C_s − C_t‖²_F / (4d²), of covariances that are means over rows."""
    features = noise(1, 9, width)
    labels = torch.arange(9) % 3
    bank = rows_of(0, torch.arange(12) % 3, width)
    scaled = math.sqrt(width) * features / features.norm(dim=1, keepdim=True)
    source = torch.cov(scaled.T, correction=0)
    target = torch.cov((math.sqrt(width) * bank.features).T, correction=0)
    expected = (source - target).norm().square() / (4 * width**2)
    found = CORAL(batch_of(features, labels, reference=reference_of(bank, [1 / 3] * 3)))
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=0)


@looped("seed", range(4))
def test_coral_in_the_clients_mix_agrees_with_numpy(seed: int) -> None:
    features, labels = noise(seed + 1, 9, 5), labels_of(seed + 1, 9, 4)
    bank = rows_of(seed, torch.arange(13) % 4)
    w = [SHARES[c] / (bank.labels == c).sum().item() for c in bank.labels.tolist()]
    z = (features / features.norm(dim=1, keepdim=True)).numpy()
    gap = np.cov(z, rowvar=False, ddof=0)
    gap = gap - np.cov(bank.features.numpy(), rowvar=False, aweights=w, ddof=0)
    found = CORAL(batch_of(features, labels, reference=reference_of(bank, SHARES)))
    assert found.item() == pytest.approx(np.square(gap).sum() / 4, rel=1e-10)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, banked=st.integers(2, 20), times=st.integers(1, 3))
def test_features_that_are_the_banks_have_no_loss_and_no_gradient(
    seed: int, banked: int, times: int
) -> None:
    labels = labels_of(seed, banked, 4)
    bank = rows_of(seed, labels)
    client = reference_of(bank, class_shares("shuffled", torch.bincount(labels, minlength=4)))
    features = 3 * bank.features.repeat(times, 1)  # their length does not count
    loss, gradient = value_and_gradient(CORAL, features, labels.repeat(times), reference=client)
    # Shares are single precision.
    assert loss.item() == pytest.approx(0, abs=1e-12)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(1, 12))
def test_coral_does_not_depend_on_a_rotation_of_everything(seed: int, rows: int) -> None:
    features, labels = noise(seed + 1, rows, 5), labels_of(seed + 1, rows, 4)
    bank = rows_of(seed, labels_of(seed, 10, 4))
    rotation, _ = torch.linalg.qr(noise(seed + 2, 5, 5))
    found, expected = (
        CORAL(batch_of(features @ turn, labels, reference=reference_of(turned, SHARES)))
        for turn, turned in (
            (rotation, Rows(bank.features @ rotation, bank.labels)),
            (torch.eye(5, dtype=torch.float64), bank),
        )
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)


def test_coral_sees_no_mean_where_mmd_does() -> None:
    # Turned to the opposite side, features vary together just as before.
    bank = rows_of(0, torch.arange(9) % 3)
    client = reference_of(bank, [1 / 3] * 3)
    opposite = batch_of(-bank.features, bank.labels, reference=client)
    assert CORAL(opposite).item() == pytest.approx(0, abs=1e-15)
    assert MaximumMeanDiscrepancy()(opposite).item() > 0.05


def test_a_lone_row_varies_by_nothing() -> None:
    client = reference_of(rows_of(0, torch.arange(9) % 3), [1 / 3] * 3)
    loss, gradient = value_and_gradient(CORAL, noise(1, 1, 5), torch.tensor([0]), reference=client)
    torch.testing.assert_close(loss, client.covariance.square().sum() / 4)
    assert not gradient.any()


# --- why the bank is seen through the client's mix of classes ------------------------------------


def test_a_client_is_not_punished_for_its_skew() -> None:
    """Within every class its features are the bank's; only the classes are not equally many."""
    bank = rows_of(0, torch.arange(12) % 3)
    times = torch.tensor([32, 6, 2])[bank.labels]
    features, labels = (
        each.repeat_interleave(times, dim=0) for each in (bank.features, bank.labels)
    )
    counts = torch.bincount(labels)
    own = reference_of(bank, class_shares("shuffled", counts))
    even = reference_of(bank, class_shares("balanced", counts))
    loss, gradient = value_and_gradient(CORAL, features, labels, reference=own)
    punished, pull = value_and_gradient(CORAL, features, labels, reference=even)
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert gradient.norm() < 1e-6
    assert punished.item() > 0.005
    assert pull.norm() > 0.001


# --- gradient ------------------------------------------------------------------------------------


def test_the_gradient_is_the_slope() -> None:
    client = reference_of(rows_of(0, labels_of(0, 13, 4)), SHARES)
    features, labels = noise(1, 5, 5).requires_grad_(), torch.tensor([0, 1, 1, 2, 0])
    assert torch.autograd.gradcheck(
        lambda moved: CORAL(batch_of(moved, labels, reference=client)), features
    )


def test_following_the_gradient_lowers_the_gap() -> None:
    client = reference_of(rows_of(0, labels_of(0, 13, 4)), SHARES)
    features, labels, losses = noise(1, 12, 5), labels_of(1, 12, 4), []
    for _ in range(60):
        loss, gradient = value_and_gradient(CORAL, features, labels, reference=client)
        losses.append(loss.item())
        features = features - 20 * gradient
    assert losses[-1] < 0.1 * losses[0]


# --- without a bank ------------------------------------------------------------------------------


def test_it_asks_for_a_bank_and_says_so_without_one() -> None:
    assert CORAL.uses_bank()
    with pytest.raises(AccordError, match="'coral' needs a bank"):
        CORAL(batch_of(noise(0, 2, 5), torch.tensor([0, 1])))
