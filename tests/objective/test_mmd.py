"""Maximum mean discrepancy to the bank, by hand and against scikit-learn's Gaussian kernel."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics.pairwise import euclidean_distances, rbf_kernel
from torch import Tensor

from accord.client.batches import class_shares
from accord.core.errors import AccordError
from accord.objective import reference
from accord.objective.mmd import MaximumMeanDiscrepancy
from accord.objective.negatives import Rows
from accord.objective.reference import Reference
from core.cases import looped
from objective.support import (
    CHUNKS,
    batch_of,
    labels_of,
    noise,
    reference_of,
    rows_of,
    value_and_gradient,
)

MMD = MaximumMeanDiscrepancy()
SHARES = [0.5, 0.3, 0.2, 0.0]
seeds = st.integers(0, 10_000)


def client_of(seed: int, rows: int = 13, classes: int = 4) -> Reference:
    return reference_of(rows_of(seed, labels_of(seed, rows, classes)), SHARES)


def plain_mmd(features: Tensor, labels: Tensor, client: Reference) -> Tensor:
    """The definition, with every distance in plain sight of autograd."""
    z, b = features / features.norm(dim=1, keepdim=True), client.rows.features
    u, w = client.row_weights(labels), client.weights

    def distances(one: Tensor, other: Tensor) -> Tensor:
        return (one[:, None, :] - other[None, :, :]).square().sum(dim=2)

    counts = torch.bincount(client.rows.labels).double()
    v = (1 / counts / (counts > 0).sum())[client.rows.labels]  # every class alike
    spread = v @ distances(b, b) @ v

    def similarity(one: Tensor, other: Tensor) -> Tensor:
        found = [(-distances(one, other) / (2.0**m * spread)).exp() for m in range(-2, 3)]
        return torch.stack(found).mean(dim=0)

    return u @ similarity(z, z) @ u - 2 * u @ similarity(z, b) @ w + w @ similarity(b, b) @ w


# --- value ---------------------------------------------------------------------------------------


def test_mmd_by_hand() -> None:
    # One image on the first of two rows that are √2 apart, the bank's mean squared distance is 1:
    # 1 − 2·½(1 + k) + ½(1 + k) = ½(1 − k), with k at exponents −2/2ᵐ.
    bank = Rows(torch.eye(2, dtype=torch.float64), torch.tensor([0, 0]))
    features = torch.tensor([[3.0, 0.0]], dtype=torch.float64)
    found = MMD(batch_of(features, torch.tensor([0]), reference=reference_of(bank, [1.0])))
    k = math.fsum(map(math.exp, (-8, -4, -2, -1, -0.5))) / 5
    assert found.item() == pytest.approx((1 - k) / 2, abs=1e-12)


def test_a_rare_class_by_hand() -> None:
    # The bank has a row of each class; the client's batch is all of class 0, its share 0.9.
    # Spread 2·½·½·2 = 1, whatever the shares; with u on the first row:
    # 1 − 2(0.9 + 0.1k) + 0.82 + 0.18k.
    bank = Rows(torch.eye(2, dtype=torch.float64), torch.tensor([0, 1]))
    features = torch.tensor([[1.0, 0.0], [2.0, 0.0]], dtype=torch.float64)
    client = reference_of(bank, [0.9, 0.1])
    found = MMD(batch_of(features, torch.tensor([0, 0]), reference=client))
    k = math.fsum(math.exp(-2 / 2.0**m) for m in range(-2, 3)) / 5
    assert found.item() == pytest.approx(0.02 * (1 - k), abs=1e-12)


@looped("seed", range(4))
def test_mmd_agrees_with_scikit_learn(seed: int) -> None:
    features, labels = noise(seed + 1, 9, 5), labels_of(seed + 1, 9, 4)
    bank = rows_of(seed, torch.arange(13) % 4)
    z, b = features.numpy(), bank.features.numpy()
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    w = np.array([SHARES[c] / (bank.labels == c).sum().item() for c in bank.labels.tolist()])
    u = np.full(9, 1 / 9)
    v = np.array([1 / 4 / (bank.labels == c).sum().item() for c in bank.labels.tolist()])
    spread = v @ euclidean_distances(b, squared=True) @ v
    expected = 0.0
    for gamma in (0.25, 0.5, 1, 2, 4):
        within, across, bank_alone = (
            rbf_kernel(one, other, gamma=gamma / spread) for one, other in ((z, z), (z, b), (b, b))
        )
        expected += (u @ within @ u - 2 * u @ across @ w + w @ bank_alone @ w) / 5
    found = MMD(batch_of(features, labels, reference=reference_of(bank, SHARES)))
    assert found.item() == pytest.approx(expected, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(seed=seeds, rows=st.integers(1, 12), banked=st.integers(1, 20))
def test_mmd_is_never_negative(seed: int, rows: int, banked: int) -> None:
    batch = batch_of(
        noise(seed + 1, rows, 5), labels_of(seed + 1, rows, 4), reference=client_of(seed, banked)
    )
    assert MMD(batch).item() >= -1e-12


@settings(max_examples=25, deadline=None)
@given(seed=seeds, banked=st.integers(2, 20), times=st.integers(1, 3))
def test_features_that_are_the_banks_have_no_loss_and_no_gradient(
    seed: int, banked: int, times: int
) -> None:
    labels = labels_of(seed, banked, 4)
    bank = rows_of(seed, labels)
    client = reference_of(bank, class_shares("shuffled", torch.bincount(labels, minlength=4)))
    features = 3 * bank.features.repeat(times, 1)  # their length does not count
    loss, gradient = value_and_gradient(MMD, features, labels.repeat(times), reference=client)
    # Shares are single precision.
    assert loss.item() == pytest.approx(0, abs=1e-6)
    torch.testing.assert_close(gradient, torch.zeros_like(gradient), rtol=0, atol=1e-6)


# --- why the bank is seen through the client's mix of classes ------------------------------------


def test_a_client_is_not_punished_for_its_skew() -> None:
    """Within every class its features are the bank's; only the classes are not equally many."""
    bank = rows_of(0, torch.arange(12) % 3)
    counts = torch.tensor([32, 6, 2]) * 4
    times = torch.tensor([32, 6, 2])[bank.labels]
    features, labels = (
        each.repeat_interleave(times, dim=0) for each in (bank.features, bank.labels)
    )
    assert torch.equal(torch.bincount(labels), counts)
    own = reference_of(bank, class_shares("shuffled", counts))
    even = reference_of(bank, class_shares("balanced", counts))
    loss, gradient = value_and_gradient(MMD, features, labels, reference=own)
    punished, pull = value_and_gradient(MMD, features, labels, reference=even)
    assert loss.item() == pytest.approx(0, abs=1e-6)
    assert gradient.norm() < 1e-6
    assert punished.item() > 0.02
    assert pull.norm() > 0.005


def test_balanced_batches_of_a_skewed_client_are_seen_in_equal_shares() -> None:
    bank = rows_of(0, torch.arange(12) % 3)
    held = bank.labels < 2
    counts = torch.tensor([90, 10, 0])
    client = reference_of(bank, class_shares("balanced", counts))
    batch = batch_of(bank.features[held], bank.labels[held], reference=client)
    assert MMD(batch).item() == pytest.approx(0, abs=1e-6)


# --- gradient ------------------------------------------------------------------------------------


def test_the_gradient_is_the_slope() -> None:
    labels, client = torch.tensor([0, 1, 1, 2]), client_of(0)
    features = noise(1, 4, 5).requires_grad_()
    assert torch.autograd.gradcheck(
        lambda moved: MMD(batch_of(moved, labels, reference=client)), features
    )


@looped("chunk", CHUNKS)
@looped("classes", [2, 4])  # with two, some images are of classes it lacks
def test_chunk_by_chunk_it_is_the_definition_in_value_and_gradient(
    monkeypatch: pytest.MonkeyPatch, chunk: int, classes: int
) -> None:
    monkeypatch.setattr(reference, "CHUNK", chunk)
    features, labels = noise(1, 8, 5), torch.arange(8) % 4
    client = client_of(0, classes=classes)
    found, gradient = value_and_gradient(MMD, features, labels, reference=client)
    expected = plain_mmd(features.requires_grad_(), labels, client)
    (expected_gradient,) = torch.autograd.grad(expected, features)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-10, atol=1e-13)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-9, atol=1e-12)


def test_looking_at_the_gradient_first_does_not_change_it(monkeypatch: pytest.MonkeyPatch) -> None:
    # Telemetry walks the graph before the backward pass does; what is not kept is made again.
    monkeypatch.setattr(reference, "CHUNK", 3)
    features = noise(1, 6, 5).requires_grad_()
    loss = MMD(batch_of(features, torch.arange(6) % 3, reference=client_of(0)))
    looks = [torch.autograd.grad(loss, features, retain_graph=True)[0] for _ in range(2)]
    loss.backward()  # type: ignore[no-untyped-call]
    assert features.grad is not None
    assert features.grad.any()
    for look in looks:
        assert torch.equal(look, features.grad)


def test_following_the_gradient_leads_to_the_bank() -> None:
    # Alone on the wrong side of the circle, an image is drawn to where the bank is.
    bank = Rows(torch.tensor([[1.0, 0.0], [0.8, 0.6]], dtype=torch.float64), torch.tensor([0, 0]))
    client = reference_of(bank, [1.0])
    features = torch.tensor([[0.0, 1.0], [0.6, 0.8]], dtype=torch.float64)
    labels, losses = torch.tensor([0, 0]), []
    for _ in range(60):
        loss, gradient = value_and_gradient(MMD, features, labels, reference=client)
        losses.append(loss.item())
        features = features - 0.2 * gradient
    assert losses[-1] < 0.01 * losses[0]


# --- without a bank ------------------------------------------------------------------------------


def test_it_asks_for_a_bank_and_says_so_without_one() -> None:
    assert MMD.uses_bank()
    with pytest.raises(AccordError, match="'mmd' needs a bank"):
        MMD(batch_of(noise(0, 2, 5), torch.tensor([0, 1])))


def test_a_batch_of_nothing_but_classes_that_the_bank_lacks_has_no_loss() -> None:
    client = reference_of(rows_of(0, torch.tensor([0, 1])), [0.5, 0.2, 0.3])
    assert MMD(batch_of(noise(0, 3, 5), torch.tensor([2, 2, 2]), reference=client)).item() == 0
