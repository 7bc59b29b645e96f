"""The contrast against a bank: public features of other classes repel, or all of them."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from functools import partial
from itertools import pairwise, product
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
from accord.objective import negatives, terms
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows
from core.cases import case, looped
from objective.support import batch_of, labels_of, noise, rows_of, value_and_gradient

MODES = ["others", "all"]
OPTIONS: list[dict[str, Any]] = [
    {},
    {"hardness": 2.0},
    {"synthetic": 3},
    {"synthetic": 50},
    {"balanced": True},
    {"queue": 100},
    {"queue": 100, "hardness": 2.0, "synthetic": 3},
    {"queue": 100, "hardness": 2.0, "synthetic": 3, "balanced": True},
]
UNBALANCED = [options for options in OPTIONS if not options.get("balanced")]
LABELS = torch.tensor([0, 0, 0, 0, 1, 1, 2, 2, 2, 3])  # the last is a class of one row
seeds = st.integers(0, 10_000)


def contrast(**options: Any) -> Contrast:
    return Contrast(**{"temperature": 0.5, **options})


def slow_contrast(
    term: Contrast, features: Tensor, labels: Tensor, queue: Rows, bank: Rows
) -> Tensor:
    """The definition: image by image, pair by pair."""
    z, y, tau, beta = F.normalize(features, dim=1), labels.tolist(), term.temperature, term.hardness

    def cosine(i: int, row: Tensor) -> float:
        return float((z[i] @ row).detach())

    past = list(zip(queue.features, queue.labels.tolist(), strict=True)) if term.queue else []
    public = list(zip(bank.features, bank.labels.tolist(), strict=True))
    # Every class has the same say: as a negative over all of its rows, as a positive over those
    # that an image of it meets.
    met = public if term.bank == "all" else []
    here = Counter([*y, *(label for _, label in met)])
    counts = Counter([*y, *(label for _, label in (*past, *public))])
    mean_count = counts.total() / len(counts)

    def say(count: int) -> float:
        return mean_count / count if term.balanced else 1

    losses = defaultdict(list)
    for i, own in enumerate(y):
        positives = [j for j in range(len(y)) if y[j] == own and j != i]
        others = [(z[j], y[j]) for j in range(len(y)) if y[j] != own]
        others += [(row, label) for row, label in (*past, *public) if label != own]
        alike = [(row, own) for row, label in public if label == own and term.bank == "all"]
        hard = [math.exp(beta * cosine(i, row)) for row, _ in (*others, *alike)]
        mean = sum(hard) / len(hard) if hard else 1
        total = torch.zeros((), dtype=z.dtype)
        for j in positives:
            total = total + say(here[own]) * (z[i] @ z[j] / tau).exp()
        for (row, label), weight in zip((*others, *alike), hard, strict=True):
            total = total + say(counts[label]) * weight / mean * (z[i] @ row / tau).exp()
        # Of an image's own class none are made up: the means of two others are no images of it.
        hardest = sorted((row for row, _ in others), key=partial(cosine, i), reverse=True)
        for one, two in list(pairwise(hardest))[: term.synthetic]:
            made = F.normalize((one + two).detach(), dim=0)
            total = total + math.exp(beta * cosine(i, made)) / mean * (z[i] @ made / tau).exp()
        if positives:
            pulled = torch.stack([z[i] @ z[j] / tau for j in positives]).mean()
            losses[own if term.balanced else 0].append(total.log() - pulled)
    return torch.stack([torch.stack(each).mean() for each in losses.values()]).mean()


# --- value ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "seen"), [("none", [2]), ("others", [2, 1.2]), ("all", [2, 1.2, 2])]
)
def test_a_bank_by_hand(mode: str, seen: list[float]) -> None:
    # Two equal rows of class 0. In the bank, class 1 stands at cosine 0.6 and class 0 at 1.
    bank = Rows(torch.tensor([[0.6, 0.8], [1.0, 0.0]], dtype=torch.float64), torch.tensor([1, 0]))
    features = torch.tensor([[2.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    found = contrast(bank=mode)(batch_of(features, torch.tensor([0, 0]), bank=bank))
    assert found.item() == pytest.approx(math.log(sum(map(math.exp, seen))) - 2, abs=1e-12)


@looped("mode", MODES)
@looped("temperature", [0.07, 0.5])
@looped("chunk", [3, 4096])
@looped("seed", range(2))
def test_contrast_with_a_bank_agrees_with_pytorch_metric_learning(
    monkeypatch: pytest.MonkeyPatch, mode: str, temperature: float, chunk: int, seed: int
) -> None:
    """Its references are the batch and the bank; the pairs it may see are named."""
    monkeypatch.setattr(negatives, "CHUNK", chunk)
    labels, bank = labels_of(seed, 12, 3), rows_of(seed, labels_of(seed + 1, 20, 5))
    features = noise(seed + 2, 12, 5)
    term = contrast(temperature=temperature, bank=mode)
    found, gradient = value_and_gradient(term, features, labels, bank=bank)
    features.requires_grad_()
    # Where all of the bank repels, its labels are such as no image has.
    told = bank.labels + 100 if mode == "all" else bank.labels
    everyone = torch.cat([labels, told])
    alike = labels[:, None] == everyone[None, :]
    seen = torch.ones_like(alike[:, :12]).fill_diagonal_(False)
    positive = torch.cat([alike[:, :12] & seen, torch.zeros_like(alike[:, 12:])], dim=1)
    pairs = (*positive.nonzero(as_tuple=True), *(~alike).nonzero(as_tuple=True))
    expected = SupConLoss(temperature=temperature)(
        features, labels, pairs, torch.cat([features, bank.features]), everyone
    )
    (expected_gradient,) = torch.autograd.grad(expected, features)
    torch.testing.assert_close(found, expected.detach(), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-7, atol=1e-10)


@looped("mode", MODES)
@looped("options", OPTIONS)
def test_a_bank_with_every_option_is_the_definition_in_value_and_gradient(
    monkeypatch: pytest.MonkeyPatch, mode: str, options: dict[str, Any]
) -> None:
    monkeypatch.setattr(negatives, "CHUNK", 4)
    queue, bank = rows_of(1, labels_of(1, 6, 5)), rows_of(2, labels_of(2, 11, 6))
    for temperature in (0.07, 0.5):
        with case(temperature):
            term = contrast(bank=mode, **{**options, "temperature": temperature})
            features = noise(3, 10, 5)
            found, gradient = value_and_gradient(term, features, LABELS, queue=queue, bank=bank)
            expected = slow_contrast(term, features.requires_grad_(), LABELS, queue, bank)
            (expected_gradient,) = torch.autograd.grad(expected, features)
            # Logarithms of counts are kept in single precision.
            near = 1e-6 if term.balanced else 1e-10
            torch.testing.assert_close(found, expected.detach(), rtol=near, atol=near)
            torch.testing.assert_close(gradient, expected_gradient, rtol=near, atol=near)


@looped("options", [{}, {"hardness": 2.0}, {"synthetic": 3}, {"balanced": True}])
def test_others_of_a_bank_repel_as_past_features_do(options: dict[str, Any]) -> None:
    features, rows = noise(0, 10, 5), rows_of(1, labels_of(1, 12, 5))
    found = value_and_gradient(contrast(bank="others", **options), features, LABELS, bank=rows)
    expected = value_and_gradient(contrast(queue=12, **options), features, LABELS, queue=rows)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


# --- rows of an image's own class ----------------------------------------------------------------


def with_more(bank: Rows, more: Rows) -> Rows:
    return Rows(torch.cat([bank.features, more.features]), torch.cat([bank.labels, more.labels]))


@looped("options", UNBALANCED)
def test_rows_of_the_images_own_class_change_nothing_among_others(options: dict[str, Any]) -> None:
    features, labels = noise(0, 6, 5), torch.zeros(6, dtype=torch.long)
    queue, bank = rows_of(1, torch.tensor([0, 1, 2])), rows_of(2, torch.tensor([1, 2]))
    more = with_more(rows_of(3, torch.zeros(4, dtype=torch.long)), bank)
    term = contrast(bank="others", **options)
    found = value_and_gradient(term, features, labels, queue=queue, bank=more)
    expected = value_and_gradient(term, features, labels, queue=queue, bank=bank)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_rows_of_the_images_own_class_repel_where_all_do() -> None:
    features, labels = noise(0, 6, 5), torch.zeros(6, dtype=torch.long)
    bank = rows_of(2, torch.tensor([1, 2]))
    more = with_more(rows_of(3, torch.zeros(4, dtype=torch.long)), bank)
    term = contrast(bank="all")
    (few, _), (many, _) = (
        value_and_gradient(term, features, labels, bank=each) for each in (bank, more)
    )
    assert many > few + 0.1


def test_where_all_repel_labels_of_the_bank_do_not_matter() -> None:
    features, bank = noise(0, 10, 5), rows_of(1, labels_of(1, 12, 5))
    other = Rows(bank.features, labels_of(2, 12, 5))
    found, expected = (
        value_and_gradient(contrast(bank="all", hardness=2), features, LABELS, bank=each)
        for each in (other, bank)
    )
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_one_class_alone_is_pushed_from_its_own_bank_only_where_all_repel() -> None:
    # Two views that agree: without anything that repels there is nothing left to gain.
    z = torch.tensor([[1.0, 0.0], [1.0, 0.0]], dtype=torch.float64)
    bank = Rows(torch.tensor([[0.8, 0.6]], dtype=torch.float64), torch.tensor([0]))
    labels = torch.tensor([0, 0])
    loss, gradient = value_and_gradient(contrast(bank="others"), z, labels, bank=bank)
    assert loss.item() == pytest.approx(0, abs=1e-12)
    assert not gradient.any()
    loss, gradient = value_and_gradient(contrast(bank="all"), z, labels, bank=bank)
    assert loss.item() == pytest.approx(math.log(math.exp(2) + math.exp(1.6)) - 2, abs=1e-12)
    assert bool((gradient[:, 1] > 0).all())  # a step against it leads away from (0.8, 0.6)


# --- more rows -----------------------------------------------------------------------------------


@settings(max_examples=40, deadline=None)
@given(
    seed=seeds,
    mode=st.sampled_from(MODES),
    rows=st.integers(2, 12),
    banked=st.integers(0, 10),
    more=st.integers(1, 10),
)
def test_more_rows_in_the_bank_never_lower_the_loss(
    seed: int, mode: str, rows: int, banked: int, more: int
) -> None:
    features, labels = noise(seed, rows, 5), labels_of(seed, rows, 3)
    bank = rows_of(seed + 1, labels_of(seed + 1, banked, 4))
    larger = with_more(bank, rows_of(seed + 2, labels_of(seed + 2, more, 4)))
    term = contrast(bank=mode)
    before = term(batch_of(features, labels, bank=bank))
    after = term(batch_of(features, labels, bank=larger))
    assert after >= before - 1e-12
    if mode == "all" and bool((torch.bincount(labels) > 1).any()):
        assert after > before


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("options", OPTIONS)
@settings(max_examples=10, deadline=None)
@given(seed=seeds, rows=st.integers(2, 12), banked=st.integers(0, 12))
def test_the_order_of_the_bank_does_not_matter(
    mode: str, options: dict[str, Any], seed: int, rows: int, banked: int
) -> None:
    features, labels = noise(seed, rows, 5), labels_of(seed, rows, 3)
    bank, queue = (rows_of(seed + i, labels_of(seed + i, banked, 4)) for i in (1, 2))
    turned = Rows(bank.features.flip(0), bank.labels.flip(0))
    term = contrast(bank=mode, **options)
    found, expected = (
        value_and_gradient(term, features, labels, queue=queue, bank=each)
        for each in (turned, bank)
    )
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("mode", MODES)
def test_an_empty_bank_changes_nothing(mode: str) -> None:
    features, nothing = noise(0, 10, 5), rows_of(0, torch.zeros(0, dtype=torch.long))
    found = value_and_gradient(contrast(bank=mode), features, LABELS, bank=nothing)
    torch.testing.assert_close(found, value_and_gradient(contrast(), features, LABELS))


@pytest.mark.parametrize("mode", MODES)
def test_small_batches_and_banks_are_the_definition(mode: str) -> None:
    banks = [[0], [0, 0, 0], [1], [0, 1, 2, 3, 7]]
    batches = [[0], [0, 0], [0, 1], [3, 3, 1]]
    queue = rows_of(2, torch.tensor([0, 1]))
    for options, banked, labels in product(OPTIONS, banks, batches):
        with case(options, banked, labels):
            term, bank = contrast(bank=mode, **options), rows_of(1, torch.tensor(banked))
            features, y = noise(0, len(labels), 5), torch.tensor(labels)
            loss, gradient = value_and_gradient(term, features, y, queue=queue, bank=bank)
            if len(set(labels)) == len(labels):  # nobody has a positive
                assert loss.item() == 0
                assert not gradient.any()
                continue
            expected = slow_contrast(term, features.requires_grad_(), y, queue, bank)
            (expected_gradient,) = torch.autograd.grad(expected, features)
            torch.testing.assert_close(loss, expected.detach(), rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(gradient, expected_gradient, rtol=1e-6, atol=1e-6)


# --- what a bank is to the term ------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
def test_no_gradient_reaches_the_bank(mode: str) -> None:
    for options in OPTIONS:
        rows, queue = rows_of(1, labels_of(1, 12, 5)), rows_of(2, labels_of(2, 6, 5))
        bank = Rows(rows.features.requires_grad_(), rows.labels)
        features = noise(0, 10, 5).requires_grad_()
        loss = contrast(bank=mode, **options)(batch_of(features, LABELS, queue=queue, bank=bank))
        loss.backward()  # type: ignore[no-untyped-call]
        assert bank.features.grad is None, options
        assert features.grad is not None, options
        assert features.grad.any(), options


def test_a_term_that_asks_for_no_bank_ignores_one() -> None:
    features, bank = noise(0, 10, 5), rows_of(1, labels_of(1, 12, 5))
    queue = rows_of(2, labels_of(2, 6, 5))
    for options in OPTIONS:
        found = contrast(**options)(batch_of(features, LABELS, queue=queue, bank=bank))
        without = contrast(**options)(batch_of(features, LABELS, queue=queue))
        assert torch.equal(found, without), options


@pytest.mark.parametrize("mode", MODES)
def test_a_term_that_asks_for_a_bank_says_so_without_one(mode: str) -> None:
    with pytest.raises(AccordError, match="'contrast' needs a bank"):
        contrast(bank=mode)(batch_of(noise(0, 10, 5), LABELS, queue=rows_of(1, LABELS)))


def test_who_asks_for_a_bank() -> None:
    assert not contrast(queue=5, hardness=1, synthetic=2, balanced=True).uses_bank()
    assert all(contrast(bank=mode).uses_bank() for mode in MODES)


def test_other_kinds_of_bank_are_refused() -> None:
    with pytest.raises(AccordError, match=r"contrast\.bank.*'none', 'others' or 'all'.*'some'"):
        make_part(terms, {"use": "contrast", "bank": "some"}, "contrast")
