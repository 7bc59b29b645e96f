"""What the contrast repels: past features, hard and made-up negatives, classes of equal say."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from accord.objective import negatives
from accord.objective.negatives import Rows
from core.cases import case, looped
from objective.contrasts import (
    DEFINED,
    batch_of,
    contrast,
    labels_of,
    noise,
    rows_of,
    seeds,
    slow_contrast,
    value_and_gradient,
)


@looped(("options", "queued"), DEFINED)
def test_every_option_is_its_definition_in_value_and_gradient(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], queued: int
) -> None:
    for temperature in (0.07, 0.5):
        with case(temperature):
            assert_definition(monkeypatch, options, queued, temperature)


def assert_definition(
    monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], queued: int, temperature: float
) -> None:
    monkeypatch.setattr(negatives, "CHUNK", 4)
    labels = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2, 3])  # the last is a class of one row
    queue = rows_of(1, labels_of(1, queued, 6)) if queued else None
    term, features = contrast(temperature=temperature, **options), noise(2, 10, 5)
    found, gradient = value_and_gradient(term, features, labels, queue)
    expected = slow_contrast(term, features.requires_grad_(), labels, queue)
    (expected_gradient,) = torch.autograd.grad(expected, features)
    # Logarithms of counts are kept in single precision.
    near = 1e-6 if term.balanced else 1e-10
    torch.testing.assert_close(found, expected.detach(), rtol=near, atol=near)
    torch.testing.assert_close(gradient, expected_gradient, rtol=near, atol=near)


# --- queue -------------------------------------------------------------------------------------


def test_a_past_feature_by_hand() -> None:
    # Two equal rows of class 0. In the past, class 1 stood at cosine 0.6 and class 0 at 1.
    past = Rows(torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64), torch.tensor([1, 0]))
    features = torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    found = contrast(temperature=0.5)(batch_of(features, torch.tensor([0, 0]), past))
    assert found.item() == pytest.approx(math.log(math.exp(2) + math.exp(1.2)) - 2, abs=1e-12)


@pytest.mark.parametrize("chunk", [3, 4096])
def test_contrast_with_a_queue_agrees_with_pytorch_metric_learning(
    monkeypatch: pytest.MonkeyPatch, chunk: int
) -> None:
    """Its references are the batch and the queue; the pairs it may see are named."""
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    for temperature, seed in product((0.07, 0.5), range(3)):
        with case(temperature, seed):
            assert_agrees(temperature, seed)


def assert_agrees(temperature: float, seed: int) -> None:
    labels, queue = labels_of(seed, 12, 3), rows_of(seed, labels_of(seed + 1, 20, 5))
    features = noise(seed + 2, 12, 5)
    found, gradient = value_and_gradient(contrast(temperature=temperature), features, labels, queue)
    features.requires_grad_()
    everyone = torch.cat([labels, queue.labels])
    alike = labels[:, None] == everyone[None, :]
    seen = torch.ones_like(alike[:, :12]).fill_diagonal_(False)
    positive = torch.cat([alike[:, :12] & seen, torch.zeros_like(alike[:, 12:])], dim=1)
    pairs = (*positive.nonzero(as_tuple=True), *(~alike).nonzero(as_tuple=True))
    expected = SupConLoss(temperature=temperature)(
        features, labels, pairs, torch.cat([features, queue.features]), everyone
    )
    (expected_gradient,) = torch.autograd.grad(expected, features)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-7, atol=1e-10)


@looped("past", [[], [0, 0, 0]])
@looped("options", [{}, {"hardness": 2.0}, {"synthetic": 3}])
def test_a_queue_without_other_classes_changes_nothing(
    options: dict[str, Any], past: list[int]
) -> None:
    features, labels = noise(0, 4, 5), torch.zeros(4, dtype=torch.long)
    queue = rows_of(1, torch.tensor(past, dtype=torch.long))
    found = value_and_gradient(contrast(**options), features, labels, queue)
    torch.testing.assert_close(found, value_and_gradient(contrast(**options), features, labels))


# --- hardness ----------------------------------------------------------------------------------


@pytest.mark.parametrize("queued", [0, 15])
def test_the_weights_of_negatives_have_mean_one(queued: int) -> None:
    # So hot that every exp(cosine/τ) is 1: the denominator is the sum of weights, 5 + past rows.
    features, labels = noise(0, 6, 5), torch.tensor([0, 0, 0, 1, 1, 1])
    queue = rows_of(1, torch.full((queued,), 2))
    found = contrast(temperature=1e12, hardness=3)(batch_of(features, labels, queue))
    assert found.item() == pytest.approx(math.log(5 + queued), abs=1e-9)


def test_hardness_by_hand() -> None:
    # Negatives at cosine 1 and 0: with e^β = 3 they weigh 3/2 and 1/2. The positive is at 0.
    features = torch.tensor([[1, 0, 0], [0, 1, 0], [1, 0, 0], [0, 0, 1]], dtype=torch.float64)
    term = contrast(temperature=1, hardness=math.log(3))
    found = term(batch_of(features, torch.tensor([0, 0, 1, 2])))
    first = math.log(1 + 3 / 2 * math.e + 1 / 2)
    second = math.log(1 + 1 + 1)  # both of its negatives are at 0
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-12)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(3, 12), hardness=st.floats(0.5, 5))
def test_hard_negatives_never_repel_less(seed: int, rows: int, hardness: float) -> None:
    """Weights that grow with similarity and have mean one can only raise the denominator."""
    features, labels = noise(seed, rows, 5), labels_of(seed, rows, 3)
    batch = batch_of(features, labels, rows_of(seed, labels_of(seed + 1, 8, 4)))
    plain = contrast(temperature=0.5)(batch)
    assert contrast(temperature=0.5, hardness=hardness)(batch) >= plain - 1e-9


# --- synthetic ---------------------------------------------------------------------------------


def test_a_made_up_negative_by_hand() -> None:
    # The hardest two, (1, 0, 0) and (0, 1, 0), give (1, 1, 0)/√2; the third has no part in it.
    queue = Rows(torch.tensor([[0, 1, 0], [-1, 0, 0], [1, 0, 0]]).double(), torch.tensor([1, 2, 3]))
    features = torch.tensor([[1.0, 0, 0], [1.0, 0, 0]], dtype=torch.float64)
    found = contrast(temperature=1, synthetic=1)(batch_of(features, torch.tensor([0, 0]), queue))
    seen = [1, 1, 0, -1, math.sqrt(1 / 2)]  # the positive, three of the past, and the mean
    assert found.item() == pytest.approx(math.log(sum(map(math.exp, seen))) - 1, abs=1e-12)


@pytest.mark.parametrize("options", [{"synthetic": 3}, {"synthetic": 3, "hardness": 2.0}])
def test_one_class_alone_has_nothing_to_make_negatives_of(options: dict[str, Any]) -> None:
    features, labels = noise(0, 4, 5), torch.zeros(4, dtype=torch.long)
    found = value_and_gradient(contrast(**options), features, labels)
    torch.testing.assert_close(found, value_and_gradient(contrast(), features, labels))


def test_a_lone_negative_has_no_neighbour_to_mix_with() -> None:
    features, labels = noise(0, 3, 5), torch.tensor([0, 0, 1])
    found = value_and_gradient(contrast(synthetic=3), features, labels)
    torch.testing.assert_close(found, value_and_gradient(contrast(), features, labels))


# --- balance -----------------------------------------------------------------------------------


def test_balanced_classes_by_hand() -> None:
    # All rows alike: a class of 4 weighs 3/4 a row, one of 2 weighs 3/2; mean over two classes.
    features, labels = torch.ones(6, 5, dtype=torch.float64), torch.tensor([0, 0, 0, 0, 1, 1])
    found = contrast(temperature=1, balanced=True)(batch_of(features, labels))
    first, second = math.log(3 * 3 / 4 + 2 * 3 / 2), math.log(3 / 2 + 4 * 3 / 4)
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-6)


@pytest.mark.parametrize("options", [{}, {"hardness": 2.0}, {"synthetic": 3}])
def test_classes_that_are_equally_many_need_no_balance(options: dict[str, Any]) -> None:
    features, labels = noise(0, 9, 5), torch.arange(9) % 3
    found = value_and_gradient(contrast(balanced=True, **options), features, labels)
    torch.testing.assert_close(found, value_and_gradient(contrast(**options), features, labels))


def test_balanced_a_class_repels_the_same_however_often_it_is_in_the_queue() -> None:
    features, labels = noise(0, 7, 5), torch.tensor([0, 0, 0, 0, 0, 1, 1])
    once = rows_of(1, torch.tensor([2, 2, 3]))
    often = Rows(once.features[[0, 1, 0, 1, 0, 1, 2]], once.labels[[0, 1, 0, 1, 0, 1, 2]])

    def gradient(past: Rows, balanced: bool) -> Tensor:
        return value_and_gradient(contrast(balanced=balanced), features, labels, past)[1]

    torch.testing.assert_close(gradient(often, True), gradient(once, True), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(gradient(often, False), gradient(once, False), rtol=1e-2)
