"""`stabilised`: `attenuated` with γ/σ_a², which bounds λ_raw by L_loc/(2γ)."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from balance.support import a_step, own_loss, settle, sigmas

loss = st.floats(0.01, 10)


def test_the_own_loss_by_hand() -> None:
    params = {"start_local": math.log(6), "start_align": math.log(2), "gamma": 0.5}
    weigher = sigmas("stabilised", params)
    expected = 2 / 12 + 0.25 * 3 / 4 + 0.5 / 2 + math.log(6) / 2 + math.log(2) / 2
    assert own_loss(weigher, a_step(2.0, 3.0, 0.75)).item() == pytest.approx(expected)


def test_the_net_sees_the_attenuated_lambda() -> None:
    params = {"start_local": math.log(6), "start_align": math.log(2), "gamma": 0.5}
    weigher = sigmas("stabilised", params)
    weights = weigher.weigh(a_step(progress=0.75))
    assert float(weights.align) == pytest.approx(0.25 * 3)
    assert weights.local is None
    assert weigher.readings(0.75).attenuation == 0.25
    assert weigher.readings(0.75).lambda_raw == pytest.approx(3)


@settings(max_examples=15, deadline=None)
@given(local=loss, align=loss, p=st.floats(0, 0.9), gamma=st.floats(0, 1))
def test_gamma_is_added_to_the_attenuated_loss(
    local: float, align: float, p: float, gamma: float
) -> None:
    weigher = sigmas("stabilised", {"gamma": gamma})
    settle(weigher, a_step(local, align, p))
    found = weigher.readings(p)
    assert found.sigma_sq_local == pytest.approx(local, rel=1e-4)
    assert found.sigma_sq_align == pytest.approx((1 - p) * align + 2 * gamma, rel=1e-4)
    assert found.lambda_raw == pytest.approx(weigher.equilibrium(local, align, p), rel=1e-4)


@settings(max_examples=50, deadline=None)
@given(local=loss, align=st.floats(0, 10), p=st.floats(0, 1), gamma=st.floats(1e-6, 1))
def test_lambda_is_bounded_however_small_the_loss(
    local: float, align: float, p: float, gamma: float
) -> None:
    found = sigmas("stabilised", {"gamma": gamma}).equilibrium(local, align, p)
    assert found is not None
    assert 0 < found <= local / (2 * gamma) * (1 + 1e-12)


def test_without_gamma_it_is_attenuated() -> None:
    stabilised, attenuated = sigmas("stabilised", {"gamma": 0}), sigmas("attenuated")
    at = a_step(2.0, 3.0, 0.75)
    assert own_loss(stabilised, at).item() == own_loss(attenuated, at).item()
    assert stabilised.equilibrium(2.0, 3.0, 0.75) == attenuated.equilibrium(2.0, 3.0, 0.75)
