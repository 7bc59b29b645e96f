"""What a student minimises, by hand."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.objective import Batch, make_term


def batch(features: list[list[float]], logits: list[list[float]], **lesson: Tensor) -> Batch:
    rows = torch.tensor(features)
    return Batch(
        features=rows,
        logits=torch.tensor(logits),
        labels=torch.zeros(len(rows), dtype=torch.long),
        prototypes=torch.eye(2),
        label_counts=torch.tensor([len(rows), 0]),
        lesson=lesson,
    )


def test_imitation_is_the_cross_entropy_with_the_teachers_probabilities() -> None:
    seen = batch(
        [[1.0, 0.0]] * 2,
        [[math.log(3.0), 0.0], [0.0, 0.0]],
        targets=torch.tensor([[0.5, 0.5], [0.2, 0.8]]),
    )
    first = -0.5 * math.log(0.75) - 0.5 * math.log(0.25)
    found = make_term("imitation", {}, "")(seen)
    assert found.item() == pytest.approx((first + math.log(2)) / 2)


def test_imitation_is_least_where_the_student_says_what_the_teacher_says() -> None:
    t = torch.tensor([[0.7, 0.3]])
    agreed = make_term("imitation", {}, "")(batch([[1.0, 0.0]], t.log().tolist(), targets=t))
    entropy = -(t * t.log()).sum().item()
    assert agreed.item() == pytest.approx(entropy)


def test_feature_imitation_is_one_minus_the_cosine_whatever_the_lengths() -> None:
    # cos = 1 and cos = 3/5
    seen = batch(
        [[2.0, 0.0], [3.0, 4.0]],
        [[0.0, 0.0]] * 2,
        target_features=torch.tensor([[0.5, 0.0], [7.0, 0.0]]),
    )
    assert make_term("feature-imitation", {}, "")(seen).item() == pytest.approx(0.2)


@pytest.mark.parametrize("name", ["imitation", "feature-imitation"])
def test_without_a_teacher_there_is_nothing_to_imitate(name: str) -> None:
    with pytest.raises(AccordError, match="for the student of the fusion 'distilled'"):
        make_term(name, {}, "")(batch([[1.0, 0.0]], [[0.0, 0.0]]))
