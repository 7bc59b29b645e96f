"""The bank in a client's own mix of classes: weights, covariance, spread and similarity."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from accord.core.randomness import torch_generator
from accord.objective import Term, negatives, reference
from accord.objective.coral import CorrelationAlignment
from accord.objective.mmd import MaximumMeanDiscrepancy
from accord.objective.negatives import Rows
from accord.objective.reference import NARROW, Reference, covariance, kernel
from core.cases import looped
from objective.support import (
    CHUNKS,
    labels_of,
    noise,
    reference_of,
    rows_of,
    value_and_gradient,
)

UNEVEN = torch.tensor([0, 0, 0, 1, 2, 2])
TERMS = [MaximumMeanDiscrepancy(), CorrelationAlignment()]
each_term = pytest.mark.parametrize("term", TERMS, ids=["mmd", "coral"])
seeds = st.integers(0, 10_000)
some_shares = st.lists(st.floats(0.01, 1), min_size=4, max_size=4)


def uneven(shares: list[float]) -> Reference:
    return reference_of(rows_of(0, UNEVEN), shares)


def plain_kernel(a: Tensor, b: Tensor, spread: float) -> float:
    """Five Gaussians, of widths ¼, ½, 1, 2 and 4 times the spread."""
    distance = float((a - b).square().sum())
    return math.fsum(math.exp(-distance / (w * spread)) for w in (0.25, 0.5, 1, 2, 4)) / 5


# --- weights -----------------------------------------------------------------------------------


def test_a_class_weighs_its_share_however_many_rows_it_has() -> None:
    found = uneven([0.5, 0.3, 0.2]).weights
    assert found.tolist() == pytest.approx([1 / 6, 1 / 6, 1 / 6, 0.3, 0.1, 0.1], abs=1e-15)


def test_a_class_that_the_client_lacks_weighs_nothing() -> None:
    assert uneven([0, 0.8, 0.2]).weights.tolist() == pytest.approx([0, 0, 0, 0.8, 0.1, 0.1])


def test_the_share_of_a_class_that_the_bank_lacks_goes_to_the_others_in_proportion() -> None:
    found = reference_of(rows_of(0, torch.tensor([0, 0, 2])), [0.3, 0.6, 0.1, 0])
    assert found.known.tolist() == [True, False, True, False]
    assert found.weights.tolist() == pytest.approx([0.375, 0.375, 0.25])


@settings(max_examples=40, deadline=None)
@given(seed=seeds, rows=st.integers(1, 30), shares=some_shares)
def test_weights_sum_to_one_and_are_alike_within_a_class(
    seed: int, rows: int, shares: list[float]
) -> None:
    labels = labels_of(seed, rows, 4)
    weights = reference_of(rows_of(seed, labels), shares).weights
    assert weights.sum().item() == pytest.approx(1)
    there = sorted(set(labels.tolist()))
    for label in there:
        own = weights[labels == label]
        assert torch.equal(own, own[:1].expand_as(own))
        expected = shares[label] / math.fsum(shares[each] for each in there)
        assert own.sum().item() == pytest.approx(expected)


def test_weights_in_single_precision_as_a_client_has_them() -> None:
    rows = rows_of(0, UNEVEN)
    single = Reference(Rows(rows.features.float(), rows.labels), torch.tensor([0.5, 0.3, 0.2]))
    assert single.weights.dtype == torch.float32
    torch.testing.assert_close(single.weights, uneven([0.5, 0.3, 0.2]).weights.float())


def test_rows_of_a_batch_weigh_the_same_but_for_classes_that_the_bank_lacks() -> None:
    found = reference_of(rows_of(0, torch.tensor([0, 0, 2])), [0.3, 0.6, 0.1])
    assert found.row_weights(torch.tensor([0, 1, 1, 2, 0, 0])).tolist() == [
        *(0.25, 0, 0),
        *(0.25, 0.25, 0.25),
    ]
    assert found.row_weights(torch.tensor([1, 1])).tolist() == [0, 0]


def test_a_client_with_none_of_the_banks_classes_has_no_weights() -> None:
    stranger = reference_of(rows_of(0, UNEVEN), [0, 0, 0, 0.5, 0.5])
    assert stranger.weights.tolist() == [0] * 6
    assert stranger.self_similarity.item() == 0
    assert not stranger.covariance.any()


@each_term
def test_a_client_with_none_of_the_banks_classes_has_no_loss_and_no_gradient(term: Term) -> None:
    stranger = reference_of(rows_of(0, UNEVEN), [0, 0, 0, 0.5, 0.5])
    labels = torch.tensor([3, 4, 4, 3])
    loss, gradient = value_and_gradient(term, noise(1, 4, 5), labels, reference=stranger)
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros(4, 5, dtype=torch.float64))


@each_term
def test_images_of_classes_that_the_bank_lacks_do_not_count(term: Term) -> None:
    features, labels = noise(1, 6, 5), torch.tensor([0, 3, 1, 2, 3, 0])
    client = reference_of(rows_of(0, UNEVEN), [0.4, 0.2, 0.1, 0.3])
    known = labels < 3
    loss, gradient = value_and_gradient(term, features, labels, reference=client)
    fewer = value_and_gradient(term, features[known], labels[known], reference=client)
    torch.testing.assert_close((loss, gradient[known]), fewer)
    assert loss > 0.01
    assert not gradient[~known].any()


@each_term
def test_a_batch_of_nothing_but_such_classes_has_no_loss(term: Term) -> None:
    client = reference_of(rows_of(0, UNEVEN), [0.4, 0.2, 0.1, 0.3])
    loss, gradient = value_and_gradient(
        term, noise(1, 2, 5), torch.tensor([3, 3]), reference=client
    )
    assert loss == 0
    assert torch.equal(gradient, torch.zeros(2, 5, dtype=torch.float64))


# --- covariance and spread -----------------------------------------------------------------------


def test_covariance_by_hand() -> None:
    # Mean (¾, ¼); both coordinates vary by ¾·¼, against each other.
    rows = torch.tensor([[1.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = covariance(rows, torch.tensor([0.75, 0.25], dtype=torch.float64))
    assert found.tolist() == [[0.1875, -0.1875], [-0.1875, 0.1875]]


@pytest.mark.parametrize("shares", [[1, 1, 1], [0.5, 0.3, 0.2], [0.9, 0.1, 0]])
def test_covariance_agrees_with_numpy_and_torch(shares: list[float]) -> None:
    client = uneven(shares)
    b, w = client.rows.features, client.weights
    expected = np.cov(b.numpy(), rowvar=False, aweights=w.numpy(), ddof=0)
    np.testing.assert_allclose(client.covariance.numpy(), expected, rtol=1e-12, atol=1e-15)
    theirs = torch.cov(b.T, aweights=w, correction=0)
    torch.testing.assert_close(client.covariance, theirs, rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("shares", [[1, 1, 1], [0.5, 0.3, 0.2], [0.9, 0.1, 0]])
def test_spread_is_the_mean_squared_distance_of_two_rows(shares: list[float]) -> None:
    # Every class of the bank alike, whatever the client holds.
    client = uneven(shares)
    b, y = client.rows.features, client.rows.labels.tolist()
    v = [1 / len(set(y)) / y.count(label) for label in y]
    pairs = [(i, j) for i in range(len(v)) for j in range(len(v))]
    expected = math.fsum(v[i] * v[j] * float((b[i] - b[j]).square().sum()) for i, j in pairs)
    assert client.spread.item() == pytest.approx(expected, rel=1e-12)


def test_spread_does_not_need_unit_features() -> None:
    rows = Rows(torch.tensor([[3.0, 0.0], [0.0, 4.0]]), torch.tensor([0, 1]))
    assert reference_of(rows, [0.5, 0.5]).spread.item() == 2 * 0.25 * 25


def test_a_client_of_one_crowded_class_is_drawn_as_others_are() -> None:
    """Rows of a class nearly coincide, as a good teacher's do; the batch is elsewhere."""
    labels = torch.arange(40) % 4
    centres = torch.eye(4, 8, dtype=torch.float64)
    rows = Rows(F.normalize(centres[labels] + 0.02 * noise(0, 40, 8), dim=1), labels)
    features = noise(1, 12, 8)
    pulls = []
    for shares, y in (([1, 0, 0, 0], torch.zeros(12)), ([1, 1, 1, 1], torch.arange(12) % 4)):
        client = reference_of(rows, [float(share) for share in shares])
        _, gradient = value_and_gradient(TERMS[0], features, y.long(), reference=client)
        pulls.append(float(gradient.norm()))
    assert pulls[0] > pulls[1] / 3


@each_term
def test_a_bank_whose_rows_coincide_still_gives_finite_losses_and_gradients(term: Term) -> None:
    rows = Rows(torch.tensor([[1.0, 0.0, 0.0]]).repeat(6, 1), UNEVEN)
    client = reference_of(rows, [0.5, 0.3, 0.2])
    assert client.spread.item() == pytest.approx(NARROW)
    features = torch.cat([noise(0, 3, 3).float(), rows.features[:1]])
    loss, gradient = value_and_gradient(
        term, features, torch.tensor([0, 0, 1, 2]), reference=client
    )
    assert bool(loss.isfinite())
    assert bool(gradient.isfinite().all())


# --- kernel --------------------------------------------------------------------------------------


def test_kernel_by_hand() -> None:
    # Squared distances 0 and 2 at spread 2: exponents −2/(2ᵐ·2) = −4, −2, −1, −½ and −¼.
    a, b = torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    found = kernel(a, b, torch.tensor(2.0))
    apart = math.fsum(map(math.exp, (-4, -2, -1, -0.5, -0.25))) / 5
    assert found[0].tolist() == pytest.approx([1, apart])


@pytest.mark.parametrize("spread", [0.1, 1.0, 7.0])
def test_kernel_is_the_mean_of_five_gaussians(spread: float) -> None:
    a, b = noise(0, 4, 3), noise(1, 6, 3)
    found = kernel(a, b, torch.tensor(spread, dtype=torch.float64))
    expected = [[plain_kernel(one, other, spread) for other in b] for one in a]
    torch.testing.assert_close(
        found, torch.tensor(expected, dtype=torch.float64), rtol=1e-12, atol=0
    )


def test_a_row_is_as_similar_to_itself_as_can_be_whatever_the_rounding() -> None:
    z = F.normalize(noise(0, 50, 40), dim=1).float()
    found = kernel(z, z, torch.tensor(NARROW))
    assert found.max() <= 1
    assert found.diagonal().min() > 0.995


# --- self-similarity -----------------------------------------------------------------------------


@looped("chunk", CHUNKS)
@looped("shares", [[1, 1, 1, 1], [0.5, 0.3, 0.2, 0], [0.9, 0, 0, 0.1]])
def test_self_similarity_is_the_whole_double_sum(
    monkeypatch: pytest.MonkeyPatch, chunk: int, shares: list[float]
) -> None:
    monkeypatch.setattr(reference, "CHUNK", chunk)
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    client = reference_of(rows_of(0, labels_of(0, 13, 3)), shares)  # class 3 is not in the bank
    b, w, s = client.rows.features, client.weights.tolist(), client.spread.item()
    pairs = [(i, j) for i in range(len(w)) for j in range(len(w))]
    expected = math.fsum(w[i] * w[j] * plain_kernel(b[i], b[j], s) for i, j in pairs)
    assert client.self_similarity.item() == pytest.approx(expected, rel=1e-12)


@looped("chunk", CHUNKS)
def test_chunks_hold_every_row_that_weighs_once_and_no_other(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    monkeypatch.setattr(reference, "CHUNK", chunk)
    client = uneven([0.9, 0, 0.1])
    parts = list(client.chunks())
    assert all(0 < len(rows) == len(weights) <= chunk for rows, weights in parts)
    kept = UNEVEN != 1
    assert torch.equal(torch.cat([rows for rows, _ in parts]), client.rows.features[kept])
    assert torch.equal(torch.cat([weights for _, weights in parts]), client.weights[kept])


# --- what must not matter ------------------------------------------------------------------------


def told(client: Reference, seed: int) -> list[Tensor]:
    """All that a client hears of its reference: its own numbers, both losses and gradients."""
    features, labels = noise(seed + 1, 6, 5), labels_of(seed + 1, 6, 4)
    found = [client.spread, client.covariance, client.self_similarity]
    for term in TERMS:
        found += value_and_gradient(term, features, labels, reference=client)
    return found


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(2, 20), shares=some_shares)
def test_the_order_of_the_banks_rows_does_not_matter(
    seed: int, rows: int, shares: list[float]
) -> None:
    bank = rows_of(seed, labels_of(seed, rows, 4))
    order = torch.randperm(rows, generator=torch_generator(seed, "order"))
    turned = Rows(bank.features[order], bank.labels[order])
    found, expected = (told(reference_of(each, shares), seed) for each in (turned, bank))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(2, 20), times=st.integers(2, 4), shares=some_shares)
def test_a_bank_with_each_row_repeated_is_the_same_bank(
    seed: int, rows: int, times: int, shares: list[float]
) -> None:
    bank = rows_of(seed, labels_of(seed, rows, 4))
    more = Rows(bank.features.repeat(times, 1), bank.labels.repeat(times))
    found, expected = (told(reference_of(each, shares), seed) for each in (more, bank))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_repeating_one_class_alone_does_not_matter_either() -> None:
    bank = rows_of(0, UNEVEN)
    often = torch.cat([torch.arange(6), torch.tensor([4, 5, 4, 5])])
    more = Rows(bank.features[often], bank.labels[often])
    shares = [0.5, 0.3, 0.2, 0]
    found, expected = (told(reference_of(each, shares), 0) for each in (more, bank))
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_the_mix_of_classes_does_matter() -> None:
    # Otherwise the three tests above would hold for a reference that is always the same.
    one, other = uneven([0.5, 0.3, 0.2, 0]), uneven([0.1, 0.3, 0.6, 0])
    for found, expected in zip(told(one, 0)[1:], told(other, 0)[1:], strict=True):
        assert not torch.allclose(found, expected, rtol=1e-3)
