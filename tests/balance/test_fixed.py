"""`fixed`: L_loc + s(p)·λ·L_al with constant λ."""

from __future__ import annotations

import math

import pytest

from accord.core.errors import AccordError
from balance.support import a_step, started


def test_lambda_is_5_unless_told() -> None:
    weights = started("fixed").weigh(a_step(progress=0.3))
    assert weights.align == 5
    assert weights.local is None
    assert weights.shared is None


@pytest.mark.parametrize("progress", [0.0, 0.4, 1.0])
def test_lambda_stays_through_training(progress: float) -> None:
    weigher = started("fixed", {"lambda": 0.5})
    assert weigher.weigh(a_step(progress=progress)).align == 0.5
    assert weigher.readings(progress).lambda_effective == 0.5


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 4.0), (0.25, 3.0), (1.0, 0.0)])
def test_linear_attenuation_multiplies_by_what_is_left(progress: float, expected: float) -> None:
    weigher = started("fixed", {"lambda": 4, "attenuation": "linear"})
    assert weigher.weigh(a_step(progress=progress)).align == expected
    assert weigher.readings(progress).attenuation == 1 - progress
    assert weigher.readings(progress).lambda_raw == 4


def test_cosine_attenuation() -> None:
    weigher = started("fixed", {"lambda": 4, "attenuation": "cosine"})
    expected = 4 * (1 + math.cos(math.pi / 4)) / 2
    assert weigher.weigh(a_step(progress=0.25)).align == pytest.approx(expected, abs=1e-12)


def test_every_client_has_the_same_lambda() -> None:
    assert started("fixed", counts=(100, 0)).readings(0) == started("fixed").readings(0)


def test_the_losses_do_not_matter() -> None:
    weigher = started("fixed")
    assert weigher.weigh(a_step(1e-9, 1e9)).align == weigher.weigh(a_step(7, 0)).align


def test_it_does_not_move() -> None:
    assert started("fixed").equilibrium(2.0, 3.0, 0.5) is None


def test_a_negative_lambda_is_refused() -> None:
    with pytest.raises(AccordError, match=r"balance\.lambda.*-1"):
        started("fixed", {"lambda": -1})


def test_an_unknown_attenuation_is_refused() -> None:
    with pytest.raises(AccordError, match=r"balance\.attenuation"):
        started("fixed", {"attenuation": "quadratic"})
