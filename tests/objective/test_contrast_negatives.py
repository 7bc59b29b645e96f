"""What the contrast repels: past features, hard and made-up negatives, classes of equal say."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import replace
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor
from torch.nn import functional as F

from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.objective import Batch, negatives, terms
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows

OPTIONS: list[dict[str, Any]] = [
    {},
    {"hardness": 2.0},
    {"synthetic": 3},
    {"synthetic": 50},
    {"balanced": True},
    {"hardness": 2.0, "synthetic": 3},
    {"hardness": 2.0, "balanced": True},
    {"hardness": 2.0, "synthetic": 3, "balanced": True},
]
ALL = OPTIONS[-1]
# How much the past counts for a class's say is not part of the definition.
DEFINED = [(each, n) for each in OPTIONS for n in (0, 15) if not (n and each.get("balanced"))]
seeds = st.integers(0, 10_000)


def contrast(**options: Any) -> Contrast:
    """The term, with as long a queue as there may be."""
    return Contrast(**{"queue": 100_000, **options})


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_generator(seed, "contrast"), dtype=torch.float64)


def labels_of(seed: int, rows: int, classes: int) -> Tensor:
    return torch.randint(classes, (rows,), generator=torch_generator(seed, "labels"))


def rows_of(seed: int, labels: Tensor) -> Rows:
    return Rows(F.normalize(noise(seed, len(labels), 5), dim=1), labels)


def batch_of(features: Tensor, labels: Tensor, queue: Rows | None = None) -> Batch:
    P = torch.eye(int(labels.max()) + 1, features.shape[1], dtype=features.dtype)
    counts = torch.bincount(labels, minlength=len(P))
    return Batch(features, features @ P.T, labels, P, counts, queue=queue)


def value_and_gradient(
    term: Contrast, features: Tensor, labels: Tensor, queue: Rows | None = None
) -> tuple[Tensor, Tensor]:
    features = features.detach().clone().requires_grad_()
    loss = term(batch_of(features, labels, queue))
    (gradient,) = torch.autograd.grad(loss, features)
    return loss.detach(), gradient


def slow_contrast(term: Contrast, features: Tensor, labels: Tensor, queue: Rows | None) -> Tensor:
    """The definition: image by image, pair by pair."""
    z, y, tau, beta = F.normalize(features, dim=1), labels.tolist(), term.temperature, term.hardness

    def cosine(i: int, row: Tensor) -> float:
        return float((z[i] @ row).detach())

    past = [] if queue is None else list(zip(queue.features, queue.labels.tolist(), strict=True))
    counts = Counter([*y, *(label for _, label in past)])
    say = {c: counts.total() / len(counts) / n if term.balanced else 1 for c, n in counts.items()}
    losses = defaultdict(list)
    for i, own in enumerate(y):
        positives = [j for j in range(len(y)) if y[j] == own and j != i]
        others = [(z[j], y[j]) for j in range(len(y)) if y[j] != own]
        others += [(row, label) for row, label in past if label != own]
        hard = [math.exp(beta * cosine(i, row)) for row, _ in others]
        mean = sum(hard) / len(hard) if hard else 1
        total = torch.zeros((), dtype=z.dtype)
        for j in positives:
            total = total + say[own] * (z[i] @ z[j] / tau).exp()
        for (row, label), weight in zip(others, hard, strict=True):
            total = total + say[label] * weight / mean * (z[i] @ row / tau).exp()
        alike = sorted((row for row, _ in others), key=partial(cosine, i), reverse=True)
        for one, two in list(pairwise(alike))[: term.synthetic]:
            made = F.normalize((one + two).detach(), dim=0)
            total = total + math.exp(beta * cosine(i, made)) / mean * (z[i] @ made / tau).exp()
        if positives:
            pulled = torch.stack([z[i] @ z[j] / tau for j in positives]).mean()
            losses[own if term.balanced else 0].append(total.log() - pulled)
    return torch.stack([torch.stack(each).mean() for each in losses.values()]).mean()


@pytest.mark.parametrize("temperature", [0.07, 0.5])
@pytest.mark.parametrize(("options", "queued"), DEFINED)
def test_every_option_is_its_definition_in_value_and_gradient(
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


@pytest.mark.parametrize("temperature", [0.07, 0.5])
@pytest.mark.parametrize("chunk", [3, 4096])
@pytest.mark.parametrize("seed", range(3))
def test_contrast_with_a_queue_agrees_with_pytorch_metric_learning(
    monkeypatch: pytest.MonkeyPatch, temperature: float, chunk: int, seed: int
) -> None:
    """Its references are the batch and the queue; the pairs it may see are named."""
    monkeypatch.setattr(negatives, "CHUNK", chunk)
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


@pytest.mark.parametrize("past", [[], [0, 0, 0]])
@pytest.mark.parametrize("options", [{}, {"hardness": 2.0}, {"synthetic": 3}])
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


# --- all at once -------------------------------------------------------------------------------


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


@pytest.mark.parametrize("past", [[], [0], [0, 0, 0], [1], [0, 1, 2, 3]])
@pytest.mark.parametrize("labels", [[0, 0], [0, 0, 0, 0], [0, 1], [0, 0, 1], [3, 3, 1]])
@pytest.mark.parametrize("options", OPTIONS)
def test_small_batches_give_finite_losses_and_gradients(
    options: dict[str, Any], labels: list[int], past: list[int]
) -> None:
    features, queue = noise(0, len(labels), 5), rows_of(1, torch.tensor(past, dtype=torch.long))
    loss, gradient = value_and_gradient(contrast(**options), features, torch.tensor(labels), queue)
    assert bool(loss.isfinite())
    assert bool(gradient.isfinite().all())
    if labels == [0, 1]:  # nobody has a positive
        assert loss.item() == 0
        assert not gradient.any()


@pytest.mark.parametrize(
    "past",
    [
        [],
        [1],
        [0],
        [0, 0],
    ],
)
@pytest.mark.parametrize("options", [{}, ALL])
def test_a_lone_row_has_no_loss_and_no_gradient(options: dict[str, Any], past: list[int]) -> None:
    queue = rows_of(1, torch.tensor(past, dtype=torch.long))
    loss, gradient = value_and_gradient(
        contrast(**options), noise(0, 1, 5), torch.tensor([0]), queue
    )
    assert loss.item() == 0
    assert torch.equal(gradient, torch.zeros(1, 5, dtype=torch.float64))


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e-6, 1e15])
@pytest.mark.parametrize("options", OPTIONS)
def test_extreme_features_give_finite_losses_and_gradients(
    options: dict[str, Any], scale: float
) -> None:
    features, labels = (scale * noise(0, 5, 5)).float(), torch.tensor([0, 0, 1, 1, 2])
    past = rows_of(1, torch.tensor([0, 1, 2, 3]))
    queue = Rows(past.features.float(), past.labels)
    loss, gradient = value_and_gradient(contrast(**options), features, labels, queue)
    assert bool(loss.isfinite())
    assert bool(gradient.isfinite().all())


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


@pytest.mark.parametrize("option", ["queue", "hardness", "synthetic"])
@pytest.mark.parametrize("value", [-1, math.nan, math.inf])
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
