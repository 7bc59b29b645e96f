"""Every loss term against its formula, worked out by hand or by an independent library."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pytorch_metric_learning.losses import SupConLoss
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.nets.heads import PrototypeHead
from accord.objective import Batch, Term, terms
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows
from accord.objective.prototypes import CrossEntropy, PrototypeCrossEntropy, Separation
from accord.objective.reference import Reference
from core.cases import case, looped

TERMS = terms.names()
seeds = st.integers(0, 10_000)


def batch_of(
    features: Tensor,
    labels: Tensor,
    logits: Tensor | None = None,
    prototypes: Tensor | None = None,
) -> Batch:
    P = torch.eye(int(labels.max()) + 1, features.shape[1]) if prototypes is None else prototypes
    P = P.to(features.dtype)
    bank = Rows(torch.eye(len(P), features.shape[1], dtype=P.dtype), torch.arange(len(P)))
    return Batch(
        features=features,
        logits=features @ P.T if logits is None else logits,
        labels=labels,
        prototypes=P,
        label_counts=torch.bincount(labels, minlength=len(P)),
        anchors=torch.zeros_like(P),
        bank=bank,
        lesson={
            "targets": torch.eye(len(P), dtype=P.dtype)[labels],
            "target_features": features.detach().flip(0),
            "teacher_logits": (features.detach() @ P.T).flip(0),
        },
        reference=Reference(bank, torch.full((len(P),), 1 / len(P), dtype=P.dtype)),
        parameters=(features,),
        first_parameters=(torch.zeros_like(features),),
    )


def noise(seed: int, *shape: int) -> Tensor:
    return torch.randn(shape, generator=torch_generator(seed, "terms"), dtype=torch.float64)


def labels_of(seed: int, rows: int, classes: int) -> Tensor:
    return torch.randint(classes, (rows,), generator=torch_generator(seed, "labels"))


def slow_cross_entropy(logits: Tensor, labels: Tensor) -> float:
    """The definition, one image after the other."""
    losses = []
    for row, label in zip(logits.tolist(), labels.tolist(), strict=True):
        losses.append(math.log(sum(math.exp(value) for value in row)) - row[label])
    return math.fsum(losses) / len(losses)


# --- contrast --------------------------------------------------------------------------------


def test_contrast_by_hand() -> None:
    # Directions (1, 0), (0.6, 0.8), (0, 1) at lengths 2, 5, 3; over τ = 0.5, similarities 1.2,
    # 0 and 1.6. The third row is alone in its class: it repels, but has no loss of its own.
    features = torch.tensor([[2.0, 0.0], [3.0, 4.0], [0.0, 3.0]], dtype=torch.float64)
    found = Contrast(temperature=0.5)(batch_of(features, torch.tensor([0, 0, 1])))
    first = math.log(math.exp(1.2) + math.exp(0)) - 1.2
    second = math.log(math.exp(1.2) + math.exp(1.6)) - 1.2
    assert found.item() == pytest.approx((first + second) / 2, abs=1e-12)


def test_contrast_averages_over_positives_outside_the_logarithm() -> None:
    # L_out of the paper, not L_in. Row 0 has positives at similarity 0 and 1.
    features = torch.tensor([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]], dtype=torch.float64)
    found = Contrast(temperature=1)(batch_of(features, torch.tensor([0, 0, 0])))
    between = math.log(math.exp(0) + math.exp(1)) - 0.5
    assert found.item() == pytest.approx((2 * between + math.log(2)) / 3, abs=1e-12)


@looped(("rows", "classes"), [(4, 2), (16, 3), (24, 20), (40, 7)])
def test_contrast_agrees_with_pytorch_metric_learning(rows: int, classes: int) -> None:
    for temperature, seed in product((0.07, 0.1, 0.5, 2.0), range(3)):
        with case(temperature, seed):
            assert_agrees(temperature, rows, classes, seed)


def assert_agrees(temperature: float, rows: int, classes: int, seed: int) -> None:
    labels = labels_of(seed, rows, classes)
    labels[:4] = torch.tensor([0, 0, 1, classes])  # positives, negatives, and a class of one row
    ours = noise(seed, rows, 5).requires_grad_()
    theirs = ours.detach().clone().requires_grad_()
    found = Contrast(temperature=temperature)(batch_of(ours, labels))
    expected = SupConLoss(temperature=temperature)(theirs, labels)
    (gradient,) = torch.autograd.grad(found, ours)
    (expected_gradient,) = torch.autograd.grad(expected, theirs)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradient, expected_gradient, rtol=1e-7, atol=1e-10)


def test_contrast_of_one_class_alone_still_spreads_by_similarity() -> None:
    # pytorch-metric-learning returns 0 without negatives; the formula does not.
    features = noise(0, 3, 4)
    z = features / features.norm(dim=1, keepdim=True)
    similarity = (z @ z.T).tolist()
    expected = 0.0
    for i in range(3):
        others = [similarity[i][j] for j in range(3) if j != i]
        expected += math.log(sum(map(math.exp, others))) - sum(others) / 2
    found = Contrast(temperature=1)(batch_of(features, torch.zeros(3, dtype=torch.int64)))
    assert found.item() == pytest.approx(expected / 3, abs=1e-12)


@pytest.mark.parametrize("labels", [[0], [0, 1], [2, 0, 1]])
def test_contrast_without_positives_is_zero_with_zero_gradient(labels: list[int]) -> None:
    features = noise(0, len(labels), 4).requires_grad_()
    found = Contrast()(batch_of(features, torch.tensor(labels)))
    (gradient,) = torch.autograd.grad(found, features)
    assert found.item() == 0
    assert torch.equal(gradient, torch.zeros_like(gradient))


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(2, 20), classes=st.integers(1, 5))
def test_contrast_does_not_depend_on_the_order_of_rows(seed: int, rows: int, classes: int) -> None:
    features, labels = noise(seed, rows, 4), labels_of(seed, rows, classes)
    order = torch.randperm(rows, generator=torch_generator(seed, "order"))
    found = Contrast()(batch_of(features[order], labels[order]))
    torch.testing.assert_close(found, Contrast()(batch_of(features, labels)), rtol=1e-9, atol=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, rows=st.integers(2, 20), classes=st.integers(1, 5))
def test_contrast_does_not_depend_on_rotation_or_length(seed: int, rows: int, classes: int) -> None:
    features, labels = noise(seed, rows, 4), labels_of(seed, rows, classes)
    rotation, _ = torch.linalg.qr(noise(seed + 1, 4, 4))
    lengths = noise(seed + 2, rows, 1).exp()
    found = Contrast()(batch_of(lengths * features @ rotation, labels))
    torch.testing.assert_close(found, Contrast()(batch_of(features, labels)), rtol=1e-9, atol=1e-9)


# --- cross-entropies ---------------------------------------------------------------------------


def test_cross_entropy_by_hand() -> None:
    # p(truth) = 3/4 and 1/4.
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]], dtype=torch.float64)
    found = CrossEntropy()(batch_of(torch.ones(2, 2), torch.tensor([0, 1]), logits=logits))
    assert found.item() == pytest.approx(-(math.log(3 / 4) + math.log(1 / 4)) / 2, abs=1e-12)


@pytest.mark.parametrize("seed", range(3))
def test_cross_entropy_is_minus_the_mean_log_softmax(seed: int) -> None:
    logits, labels = 3 * noise(seed, 9, 4), labels_of(seed, 9, 4)
    found = CrossEntropy()(batch_of(torch.ones(9, 2), labels, logits=logits))
    assert found.item() == pytest.approx(slow_cross_entropy(logits, labels), abs=1e-12)


def test_adjusted_cross_entropy_by_hand() -> None:
    # e^z = (3, 1) times n + 1 = (2, 6): p(truth) = 6/12 for both.
    logits = torch.tensor([[math.log(3), 0.0], [math.log(3), 0.0]], dtype=torch.float64)
    batch = batch_of(torch.ones(2, 2), torch.tensor([0, 1]), logits=logits)
    batch = replace(batch, label_counts=torch.tensor([1, 5]))
    found = CrossEntropy(adjusted=True)(batch)
    assert found.item() == pytest.approx(math.log(2), abs=1e-12)
    alike = replace(batch, label_counts=torch.tensor([7, 7]))
    assert torch.allclose(CrossEntropy(adjusted=True)(alike), CrossEntropy()(alike))


def test_prototypes_by_hand() -> None:
    # z = (0.6, 0.8), similarities 1.2 and 0.8, over τ_p = 0.4: 3 and 2.
    features = torch.tensor([[3.0, 4.0]], dtype=torch.float64)
    P = torch.tensor([[2.0, 0.0], [0.0, 1.0]], dtype=torch.float64)
    found = PrototypeCrossEntropy(temperature=0.4)(
        batch_of(features, torch.tensor([1]), prototypes=P)
    )
    assert found.item() == pytest.approx(math.log(math.exp(3) + math.exp(2)) - 2, abs=1e-12)


@pytest.mark.parametrize("temperature", [0.1, 1.0, 3.0])
def test_prototypes_is_the_cross_entropy_of_scaled_similarities(temperature: float) -> None:
    features, P, labels = noise(0, 9, 5), noise(1, 4, 5), labels_of(0, 9, 4)
    z = features / features.norm(dim=1, keepdim=True)
    found = PrototypeCrossEntropy(temperature=temperature)(batch_of(features, labels, prototypes=P))
    expected = slow_cross_entropy(z @ P.T / temperature, labels)
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_prototypes_does_not_read_the_logits() -> None:
    features, labels = noise(0, 6, 3), labels_of(0, 6, 3)
    term = PrototypeCrossEntropy()
    with_others = batch_of(features, labels, logits=noise(5, 6, 3))
    assert torch.equal(term(with_others), term(batch_of(features, labels)))


def test_prototypes_equals_cross_entropy_at_temperature_one_with_a_prototype_head() -> None:
    head = PrototypeHead(5, 3).double()
    head.initialise(torch_generator(0, "head"))
    features, labels = noise(0, 8, 5), labels_of(0, 8, 3)
    batch = batch_of(features, labels, logits=head(features), prototypes=head.prototypes)
    first, third = CrossEntropy()(batch), PrototypeCrossEntropy()(batch)
    torch.testing.assert_close(third, first, rtol=0, atol=1e-12)
    (gradient,) = torch.autograd.grad(third, head.prototypes, retain_graph=True)
    (expected,) = torch.autograd.grad(first, head.prototypes)
    torch.testing.assert_close(gradient, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 4.0])
def test_separation_is_the_cross_entropy_of_prototypes_with_themselves(temperature: float) -> None:
    P = noise(0, 4, 3)
    found = Separation(temperature=temperature)(
        batch_of(noise(1, 2, 3), torch.tensor([0, 1]), prototypes=P)
    )
    expected = slow_cross_entropy(P @ P.T / temperature, torch.arange(4))
    assert found.item() == pytest.approx(expected, abs=1e-12)


def test_separation_of_orthogonal_prototypes_by_hand() -> None:
    batch = batch_of(noise(0, 2, 2), torch.tensor([0, 1]), prototypes=2 * torch.eye(2))
    assert Separation()(batch).item() == pytest.approx(math.log(1 + math.exp(-4)), abs=1e-9)


def test_separation_reaches_prototypes_and_not_features() -> None:
    features, P = noise(0, 4, 3).requires_grad_(), noise(1, 2, 3).requires_grad_()
    loss = Separation()(batch_of(features, torch.tensor([0, 1, 1, 0]), prototypes=P))
    loss.backward()  # type: ignore[no-untyped-call]
    assert features.grad is None
    assert P.grad is not None
    assert bool((P.grad != 0).any())


@settings(max_examples=25, deadline=None)
@given(seed=seeds, scale=st.sampled_from([0.0, 1e-3, 1.0, 1e3]), classes=st.integers(2, 6))
def test_separation_is_never_negative(seed: int, scale: float, classes: int) -> None:
    P = scale * noise(seed, classes, 3)
    batch = batch_of(noise(seed, 2, 3), torch.tensor([0, 1]), prototypes=P)
    assert Separation()(batch).item() >= 0


# --- every term --------------------------------------------------------------------------------


def term_named(name: str) -> Term:
    return make_part(terms, name, "term")


@looped("name", TERMS)
def test_value_and_gradient_stay_finite_for_extreme_features(name: str) -> None:
    labels = torch.tensor([0, 0, 1, 1, 2, 2])
    for scale in (0.0, 1e-30, 1e-6, 1e6, 1e15):
        features = (scale * noise(0, 6, 4).float()).requires_grad_()
        P = noise(1, 3, 4).float().requires_grad_()
        loss = term_named(name)(batch_of(features, labels, prototypes=P))
        loss.backward()  # type: ignore[no-untyped-call]
        assert loss.shape == (), scale
        assert bool(torch.isfinite(loss)), scale
        for tensor in (features, P):
            assert tensor.grad is None or bool(torch.isfinite(tensor.grad).all()), scale


@looped("name", TERMS)
def test_a_step_along_minus_the_gradient_lowers_the_loss(name: str) -> None:
    term, labels = term_named(name), torch.tensor([0, 0, 1, 1, 2, 2])
    features, P = noise(0, 6, 4).requires_grad_(), noise(1, 3, 4).requires_grad_()
    before = term(batch_of(features, labels, prototypes=P))
    before.backward()  # type: ignore[no-untyped-call]
    moved = [
        tensor.detach() - 1e-3 * (torch.zeros_like(tensor) if tensor.grad is None else tensor.grad)
        for tensor in (features, P)
    ]
    assert term(batch_of(moved[0], labels, prototypes=moved[1])) < before


def test_temperatures_that_are_not_positive_numbers_are_refused() -> None:
    names = [name for name in TERMS if "temperature" in terms.get(name).model_fields]
    assert {"contrast", "prototypes", "separation"} <= set(names)
    for name, temperature in product(names, [0, -1, math.inf, math.nan]):
        with case(name, temperature), pytest.raises(AccordError, match="temperature"):
            make_part(terms, {"use": name, "temperature": temperature}, name)


def test_smoothed_labels_by_hand() -> None:
    # Two classes, ε = 0.2: the target is (0.9, 0.1).
    batch = batch_of(
        torch.zeros(1, 2), torch.tensor([0]), logits=torch.tensor([[math.log(3), 0.0]])
    )
    found = make_part(terms, {"use": "cross-entropy", "smoothing": 0.2}, "")(batch)
    expected = -0.9 * math.log(0.75) - 0.1 * math.log(0.25)
    assert found.item() == pytest.approx(expected, rel=1e-6)
