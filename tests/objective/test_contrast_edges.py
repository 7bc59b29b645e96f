"""The contrast with all options at once: any order, small batches, extreme features."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.objective import terms
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows
from core.cases import case, looped
from objective.contrasts import (
    ALL,
    OPTIONS,
    batch_of,
    contrast,
    labels_of,
    noise,
    rows_of,
    seeds,
    slow_contrast,
    value_and_gradient,
)


@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    rows=st.integers(2, 12),
    classes=st.integers(1, 4),
    queued=st.integers(0, 12),
    options=st.sampled_from(OPTIONS),
)
def test_the_order_of_rows_does_not_matter_with_any_option(
    seed: int, rows: int, classes: int, queued: int, options: dict[str, Any]
) -> None:
    features, labels = noise(seed, rows, 5), labels_of(seed, rows, classes)
    queue = rows_of(seed, labels_of(seed + 1, queued, 4))
    draws = torch_generator(seed, "order")
    order, turn = (torch.randperm(count, generator=draws) for count in (rows, queued))
    turned = Rows(queue.features[turn], queue.labels[turn])
    term = contrast(**options)
    found, gradient = value_and_gradient(term, features[order], labels[order], turned)
    expected, expected_gradient = value_and_gradient(term, features, labels, queue)
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(gradient, expected_gradient[order], rtol=1e-5, atol=1e-6)


@looped("options", OPTIONS)
def test_small_batches_give_finite_losses_and_gradients(options: dict[str, Any]) -> None:
    batches = [[0, 0], [0, 0, 0, 0], [0, 1], [0, 0, 1], [3, 3, 1]]
    queues: list[list[int]] = [[], [0], [0, 0, 0], [1], [0, 1, 2, 3]]
    for labels, past in product(batches, queues):
        with case(labels, past):
            assert_small_batch(contrast(**options), torch.tensor(labels), past)


def assert_small_batch(term: Contrast, labels: Tensor, past: list[int]) -> None:
    """Finite, and the definition as far as the definition goes."""
    features, queue = noise(0, len(labels), 5), rows_of(1, torch.tensor(past, dtype=torch.long))
    loss, gradient = value_and_gradient(term, features, labels, queue)
    assert bool(loss.isfinite())
    assert bool(gradient.isfinite().all())
    if labels.tolist() == [0, 1]:  # nobody has a positive
        assert loss.item() == 0
        assert not gradient.any()
    elif not (past and term.balanced):  # see DEFINED
        expected = slow_contrast(term, features.requires_grad_(), labels, queue)
        (expected_gradient,) = torch.autograd.grad(expected, features)
        torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-6)
        torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("options", [{}, ALL])
def test_a_lone_row_has_no_loss_and_no_gradient(options: dict[str, Any]) -> None:
    queues: list[list[int]] = [[], [1], [0], [0, 0]]
    for past in queues:
        queue = rows_of(1, torch.tensor(past, dtype=torch.long))
        loss, gradient = value_and_gradient(
            contrast(**options), noise(0, 1, 5), torch.tensor([0]), queue
        )
        assert loss.item() == 0, past
        assert torch.equal(gradient, torch.zeros(1, 5, dtype=torch.float64)), past


def test_extreme_features_give_finite_losses_and_gradients() -> None:
    labels, past = torch.tensor([0, 0, 1, 1, 2]), rows_of(1, torch.tensor([0, 1, 2, 3]))
    queue = Rows(past.features.float(), past.labels)
    for options, scale in product(OPTIONS, [0.0, 1e-30, 1e-6, 1e15]):
        features = (scale * noise(0, 5, 5)).float()
        loss, gradient = value_and_gradient(contrast(**options), features, labels, queue)
        assert bool(loss.isfinite()), (options, scale)
        assert bool(gradient.isfinite().all()), (options, scale)


@looped("options", OPTIONS)
def test_the_length_of_features_does_not_count(options: dict[str, Any]) -> None:
    labels, queue = torch.tensor([0, 0, 1, 1, 2]), rows_of(1, torch.tensor([0, 1, 2, 3]))
    features = noise(0, 5, 5)
    expected, _ = value_and_gradient(contrast(**options), features, labels, queue)
    for scale in (1e-6, 1e15):
        found, _ = value_and_gradient(contrast(**options), scale * features, labels, queue)
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "hardness",
    [50.0, 100.0, 1000.0],
)
def test_however_hard_only_the_hardest_negative_is_left(hardness: float) -> None:
    # Of negatives at cosine 1, 0 and −1, the first has all the weight: 3. The positive is at 1.
    past = Rows(torch.tensor([[1.0, 0], [0, 1], [-1, 0]]), torch.tensor([1, 1, 1]))
    features = torch.tensor([[1.0, 0], [1, 0]])
    term = contrast(temperature=1, hardness=hardness)
    loss, gradient = value_and_gradient(term, features, torch.tensor([0, 0]), past)
    # A float32 near β is exact to 6e-8·β.
    assert loss.item() == pytest.approx(math.log(math.e + 3 * math.e) - 1, abs=1e-7 * hardness)
    assert bool(gradient.isfinite().all())


def test_an_image_in_two_views_has_finite_loss_with_every_option() -> None:
    features = noise(0, 1, 5).float().repeat(2, 1)  # views that came out alike
    loss, gradient = value_and_gradient(contrast(**ALL), features, torch.tensor([3, 3]))
    assert loss.item() <= 1e-3
    assert bool(gradient.isfinite().all())


@looped("option", ["queue", "hardness", "synthetic"])
@looped("value", [-1, math.nan, math.inf])
def test_options_that_are_negative_or_no_number_are_refused(option: str, value: float) -> None:
    with pytest.raises(AccordError, match=option):
        make_part(terms, {"use": "contrast", option: value}, "contrast")


def test_balanced_gives_every_class_equal_say_with_a_queue_too() -> None:
    """[0, 0, 1, 1] and 98 past zeros and 2 past ones: own past rows count for nothing."""
    z = F.normalize(noise(0, 4, 3), dim=1)
    y, past_labels = torch.tensor([0, 0, 1, 1]), torch.tensor([0] * 98 + [1] * 2)
    past = Rows(F.normalize(noise(1, 100, 3), dim=1), past_labels)
    batch = replace(batch_of(z, y), queue=past)
    mean = (100 + 4) / 2  # rows per class, of the batch and the past together
    losses = []
    for i in range(4):
        others = torch.cat([z[y != y[i]], past.features[past_labels != y[i]]])
        positive = z[(y == y[i]) & (torch.arange(4) != i)][0]
        own = mean / 2 * (z[i] @ positive / 0.5).exp()
        denominator = own + mean / len(others) * (others @ z[i] / 0.5).exp().sum()
        losses.append(denominator.log() - z[i] @ positive / 0.5)
    found = Contrast(temperature=0.5, queue=100, balanced=True)(batch)
    torch.testing.assert_close(found, torch.stack(losses).mean())


def test_no_more_of_the_queue_is_seen_than_asked_for() -> None:
    z, y = F.normalize(noise(0, 4, 3), dim=1), torch.tensor([0, 0, 1, 1])
    past = Rows(F.normalize(noise(1, 6, 3), dim=1), torch.tensor([0, 1] * 3))
    latest = Rows(past.features[-2:], past.labels[-2:])
    plain, whole = batch_of(z, y), replace(batch_of(z, y), queue=past)
    short = replace(batch_of(z, y), queue=latest)
    assert torch.equal(Contrast()(whole), Contrast()(plain))
    assert torch.equal(Contrast(queue=2)(whole), Contrast(queue=2)(short))
    assert not torch.equal(Contrast(queue=2)(whole), Contrast(queue=6)(whole))
