"""`fixed`: L_loc + s(p)·λ·L_al with constant λ."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.balance import Setting, Weigher, balances
from accord.errors import AccordError
from accord.parts import make_part


def weigher(params: dict[str, Any] | None = None, counts: tuple[int, ...] = (3, 4)) -> Weigher:
    rule = make_part(balances, {"use": "fixed", **(params or {})}, "balance")
    return rule.start(Setting(torch.tensor(counts), lr=0.05))


def total(rule: Weigher, progress: float) -> float:
    return rule.weigh(torch.tensor(2.0), torch.tensor(3.0), progress).item()


def test_lambda_is_5_unless_told() -> None:
    assert total(weigher(), 0.3) == 2 + 5 * 3


@pytest.mark.parametrize("progress", [0.0, 0.4, 1.0])
def test_lambda_stays_through_training(progress: float) -> None:
    rule = weigher({"lambda": 0.5})
    assert total(rule, progress) == 2 + 0.5 * 3
    assert rule.readings(progress).lambda_effective == 0.5


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 14.0), (0.25, 11.0), (1.0, 2.0)])
def test_decay_multiplies_by_what_is_left(progress: float, expected: float) -> None:
    rule = weigher({"lambda": 4, "decay": True})
    assert total(rule, progress) == expected
    assert rule.readings(progress).attenuation == 1 - progress
    assert rule.readings(progress).lambda_raw == 4


def test_lambda_0_is_the_local_loss() -> None:
    assert total(weigher({"lambda": 0}), 0.5) == 2


def test_the_gradient_of_alignment_is_lambda() -> None:
    local, align = torch.tensor(2.0, requires_grad=True), torch.tensor(3.0, requires_grad=True)
    weigher({"lambda": 7}).backward(local, align, 0.5)
    assert local.grad == 1
    assert align.grad == 7


def test_every_client_has_the_same_lambda() -> None:
    assert weigher(counts=(100, 0)).readings(0) == weigher(counts=(1, 1)).readings(0)


def test_it_learns_nothing() -> None:
    assert weigher().parameter_groups() == []
    assert list(weigher().parameters()) == []


def test_a_negative_lambda_is_refused() -> None:
    with pytest.raises(AccordError, match=r"balance\.lambda"):
        weigher({"lambda": -1})
