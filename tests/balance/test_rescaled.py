"""`rescaled`: (L_loc + λ·L_al)/(2σ_l²), the learning rate of `uncertainty` without its λ."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from balance.support import a_step, own_loss, settle, started


def test_at_lambda_0_the_alignment_loss_does_not_act() -> None:
    weights = started("rescaled").weigh(a_step())
    assert weights.local == 0.5
    assert weights.align == 0


def test_weights_and_dials_by_hand() -> None:
    weigher = started("rescaled", {"lambda": 3, "start_local": math.log(4)})
    weights = weigher.weigh(a_step(progress=0.5))
    assert float(weights.local) == pytest.approx(1 / 8)  # type: ignore[arg-type]
    assert float(weights.align) == pytest.approx(3 / 8)
    found = weigher.readings(0.5)
    assert (found.lambda_raw, found.lambda_effective) == (3, 3)
    assert found.sigma_sq_local == pytest.approx(4)
    assert found.sigma_sq_align is None


def test_the_own_loss_is_of_the_local_loss_alone() -> None:
    weigher = started("rescaled", {"lambda": 3, "start_local": math.log(4)})
    expected = 2 / 8 + math.log(4) / 2
    assert own_loss(weigher, a_step(2.0, 3.0)).item() == pytest.approx(expected)
    assert own_loss(weigher, a_step(2.0, 9.0)).item() == pytest.approx(expected)


@settings(max_examples=10, deadline=None)
@given(local=st.floats(0.01, 10))
def test_the_variance_settles_at_the_local_loss(local: float) -> None:
    weigher = started("rescaled")
    settle(weigher, a_step(local, 3.0))
    assert weigher.readings(0).sigma_sq_local == pytest.approx(local, rel=1e-4)


def test_lambda_does_not_move() -> None:
    assert started("rescaled").equilibrium(2.0, 3.0, 0.5) is None


def test_sigma_may_start_from_entropy() -> None:
    weigher = started("rescaled", {"start_local": "entropy"}, counts=(5, 5))
    assert weigher.readings(0).sigma_sq_local == pytest.approx(10)


def test_its_group_is_as_told() -> None:
    params = {"lr_factor": 0.5, "momentum": 0.3, "clip": "apart"}
    (group,) = started("rescaled", params).groups()
    assert (group.lr_factor, group.momentum, group.clip) == (0.5, 0.3, "apart")


def test_a_negative_lambda_is_refused() -> None:
    with pytest.raises(AccordError, match=r"balance\.lambda"):
        started("rescaled", {"lambda": -1})
