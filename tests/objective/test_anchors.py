"""Anchors: the frame's geometry, and what pulling prototypes to it does."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.objective import Batch, anchor_kinds
from accord.objective.anchors import AnchorAlignment
from accord.objective.etf_anchors import SimplexETF
from accord.objective.random_anchors import RandomRows
from core.cases import looped

KINDS = anchor_kinds.names()


def frame(classes: int, width: int, seed: int = 0) -> Tensor:
    return SimplexETF().make(classes, width, torch_generator(seed, "anchors"))


def batch_of(
    prototypes: Tensor, anchors: Tensor | None, held: list[bool], features: Tensor | None = None
) -> Batch:
    f = torch.ones(2, 2, dtype=torch.float64) if features is None else features
    labels = torch.tensor([held.index(True)] * len(f))
    return Batch(f, f @ prototypes.T, labels, prototypes, torch.tensor(held).long(), anchors)


@looped("classes", [2, 3, 10, 37, 100, 1000])
def test_etf_rows_have_length_one_and_equal_angles(classes: int) -> None:
    for width in (classes, classes + 24):
        A = frame(classes, width)
        assert A.shape == (classes, width)
        assert A.dtype == torch.float32
        cosines = A.double() @ A.double().T
        expected = torch.full_like(cosines, -1 / (classes - 1)).fill_diagonal_(1)
        torch.testing.assert_close(cosines, expected, rtol=0, atol=1e-6)


def test_etf_needs_as_many_dimensions_as_classes() -> None:
    said = r"width 9 and 10 classes.*wider net\.backbone, or random anchors"
    with pytest.raises(AccordError, match=said):
        frame(10, 9)


def test_etf_of_a_single_class_is_refused() -> None:
    with pytest.raises(AccordError, match="at least 2 classes; found 1"):
        frame(1, 8)


@looped(("classes", "width"), [(1, 1), (1, 8), (10, 64), (10, 3), (1000, 2)])
def test_random_rows_have_length_one_for_any_number_of_classes(classes: int, width: int) -> None:
    A = RandomRows().make(classes, width, torch_generator(0, "anchors"))
    assert A.shape == (classes, width)
    assert A.dtype == torch.float32
    torch.testing.assert_close(A.double().norm(dim=1), torch.ones(classes).double())


def test_random_rows_prefer_no_direction() -> None:
    """The mean of n unit rows has length about 1/√n; that of all their outer products is I/d."""
    A = RandomRows().make(10_000, 4, torch_generator(0, "anchors")).double()
    assert A.mean(dim=0).norm() < 0.03
    torch.testing.assert_close(A.T @ A / 10_000, torch.eye(4).double() / 4, rtol=0, atol=0.01)


@pytest.mark.parametrize("kind", KINDS)
def test_the_same_generator_gives_the_same_anchors(kind: str) -> None:
    rule = make_part(anchor_kinds, kind, "anchors")
    first, again = (rule.make(3, 8, torch_generator(4, "anchors")) for _ in range(2))
    assert torch.equal(first, again)


@pytest.mark.parametrize("kind", KINDS)
def test_another_seed_gives_other_anchors(kind: str) -> None:
    rule = make_part(anchor_kinds, kind, "anchors")
    first, other = (rule.make(3, 8, torch_generator(seed, "anchors")) for seed in range(2))
    assert not torch.allclose(first, other, atol=0.1)


@pytest.mark.parametrize("kind", KINDS)
def test_anchors_take_nothing_from_global_random_state(kind: str) -> None:
    before = torch.get_rng_state()
    make_part(anchor_kinds, kind, "anchors").make(3, 8, torch_generator(0, "anchors"))
    assert torch.equal(torch.get_rng_state(), before)


# Squared gaps to A: row 0 (1, 4), row 1 (0, 9), row 2 (16, 0).
P = torch.tensor([[1.0, 2.0], [0.0, 3.0], [5.0, 1.0]], dtype=torch.float64)
A = torch.tensor([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)


@looped(
    ("over", "held", "expected"),
    [
        ("held", [True, False, True], (1 + 4 + 16) / 4),
        ("held", [False, True, False], 9 / 2),
        ("held", [True, True, True], 30 / 6),
        ("all", [True, False, True], 30 / 6),
        ("all", [False, True, False], 30 / 6),
    ],
)
def test_alignment_is_the_mean_squared_gap_over_elements(
    over: Literal["held", "all"], held: list[bool], expected: float
) -> None:
    assert AnchorAlignment(over=over)(batch_of(P, A, held)).item() == pytest.approx(expected)


def test_alignment_is_over_held_classes_by_default() -> None:
    assert AnchorAlignment().over == "held"


def test_alignment_is_zero_at_the_anchors() -> None:
    assert AnchorAlignment()(batch_of(A.clone(), A, [True, True, True])).item() == 0


@pytest.mark.parametrize("over", ["held", "all"])
def test_alignment_pulls_prototypes_and_nothing_else(over: Literal["held", "all"]) -> None:
    features = torch.ones(2, 2, dtype=torch.float64).requires_grad_()
    prototypes = P.clone().requires_grad_()
    held = [True, False, True]
    loss = AnchorAlignment(over=over)(batch_of(prototypes, A, held, features))
    loss.backward()  # type: ignore[no-untyped-call]
    assert features.grad is None
    # dL/dP = 2 (P − A) / (rows · d) on the rows that count.
    rows = torch.tensor(held if over == "held" else [True] * 3)
    expected = 2 * (P - A) * rows[:, None] / (rows.sum() * 2)
    assert prototypes.grad is not None
    torch.testing.assert_close(prototypes.grad, expected)


def test_alignment_without_anchors_says_what_is_missing() -> None:
    with pytest.raises(AccordError, match="anchors"):
        AnchorAlignment()(batch_of(P, None, [True, True, True]))


@pytest.mark.parametrize(
    ("progress", "target", "loss"),
    [
        (0.0, [[0, 4], [8, 0]], (1 + 4 + 4 + 4) / 4),
        (0.25, [[1, 3], [6, 0]], (0 + 1 + 0 + 4) / 4),
        (1.0, [[4, 0], [0, 0]], (9 + 4 + 36 + 4) / 4),
    ],
)
def test_progressive_anchors_go_from_the_first_prototypes_to_the_anchors(
    progress: float, target: list[list[float]], loss: float
) -> None:
    first = torch.tensor([[0.0, 4.0], [8.0, 0.0]], dtype=torch.float64)
    anchors = torch.tensor([[4.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    prototypes = torch.tensor([[1.0, 2.0], [6.0, 2.0]], dtype=torch.float64)
    batch = replace(
        batch_of(prototypes, anchors, [True, True]), first_prototypes=first, progress=progress
    )
    term = AnchorAlignment(progressive=True)
    assert term.target(batch).tolist() == target
    assert term(batch).item() == loss
    assert AnchorAlignment().target(batch).tolist() == anchors.tolist()


def test_the_angle_is_the_widest_there_is() -> None:
    # Σ_{c≠c'} ⟨a_c, a_c'⟩ ≥ −C for unit rows: the frame reaches the bound, its rows cancel out.
    centre = frame(7, 32).double().sum(dim=0).norm().item()
    assert math.isclose(centre, 0, abs_tol=1e-6)
