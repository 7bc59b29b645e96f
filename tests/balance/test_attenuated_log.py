"""`attenuated-log`: s(p) on ½ log σ_a², so that λ = s·L_loc/(L_al + 2γ) does fade."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance.support import a_step, own_loss, settle, sigmas

loss = st.floats(0.01, 10)
BY_HAND = {"start_local": math.log(6), "start_align": math.log(2), "gamma": 0.5}


def test_the_own_loss_by_hand() -> None:
    expected = 2 / 12 + 3 / 4 + 0.5 / 2 + math.log(6) / 2 + 0.25 * math.log(2) / 2
    found = own_loss(sigmas("attenuated-log", BY_HAND), a_step(2.0, 3.0, 0.75))
    assert found.item() == pytest.approx(expected)


def test_the_net_sees_lambda_as_it_is() -> None:
    weigher = sigmas("attenuated-log", BY_HAND)
    weights = weigher.weigh(a_step(progress=0.75))
    assert float(weights.align) == pytest.approx(3)
    assert weights.local is None
    assert weigher.readings(0.75).attenuation == 1
    assert weigher.readings(0.75).lambda_effective == pytest.approx(3)


@settings(max_examples=15, deadline=None)
@given(local=loss, align=loss, p=st.floats(0, 0.9), gamma=st.floats(0, 1))
def test_lambda_settles_attenuated(local: float, align: float, p: float, gamma: float) -> None:
    weigher = sigmas("attenuated-log", {"gamma": gamma})
    settle(weigher, a_step(local, align, p))
    found = weigher.readings(p)
    assert found.sigma_sq_local == pytest.approx(local, rel=1e-4)
    assert found.sigma_sq_align == pytest.approx((align + 2 * gamma) / (1 - p), rel=1e-4)
    expected = (1 - p) * local / (align + 2 * gamma)
    assert found.lambda_raw == pytest.approx(expected, rel=1e-4)
    assert weigher.equilibrium(local, align, p) == pytest.approx(expected, rel=1e-6)


@settings(max_examples=50, deadline=None)
@given(local=loss, align=loss, ps=st.tuples(st.floats(0, 1), st.floats(0, 1)))
def test_lambda_only_falls_while_the_losses_stay(
    local: float, align: float, ps: tuple[float, float]
) -> None:
    weigher = sigmas("attenuated-log", {"gamma": 0.1})
    early, late = (weigher.equilibrium(local, align, p) for p in sorted(ps))
    assert early is not None
    assert late is not None
    assert 0 <= late <= early


def test_at_the_very_end_lambda_would_be_0() -> None:
    assert sigmas("attenuated-log", {"gamma": 0.1}).equilibrium(2.0, 3.0, 1.0) == 0


def test_without_gamma_lambda_has_no_bound() -> None:
    weigher = sigmas("attenuated-log", {"gamma": 0})
    assert weigher.equilibrium(3.0, 1e-8, 0.5) == pytest.approx(1.5e8)
    assert weigher.equilibrium(3.0, 0.0, 0.5) is None
