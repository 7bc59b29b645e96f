"""`curriculum`: w(p) = w₀ + (w₁ − w₀)·p."""

from __future__ import annotations

import pytest

from accord.core.errors import AccordError
from balance.support import a_step, started


@pytest.mark.parametrize(("progress", "expected"), [(0.0, 0.1), (0.5, 0.55), (1.0, 1.0)])
def test_the_weight_rises_from_a_tenth_to_one(progress: float, expected: float) -> None:
    weigher = started("curriculum")
    assert weigher.weigh(a_step(progress=progress)).align == pytest.approx(expected, abs=1e-12)
    assert weigher.readings(progress).lambda_effective == pytest.approx(expected, abs=1e-12)


def test_other_ends() -> None:
    weigher = started("curriculum", {"start_weight": 2, "end_weight": 10})
    assert weigher.weigh(a_step(progress=0.25)).align == 4


def test_it_may_fall_too() -> None:
    weigher = started("curriculum", {"start_weight": 3, "end_weight": 1})
    assert weigher.weigh(a_step(progress=0.5)).align == 2


def test_the_local_loss_stays_whole() -> None:
    weights = started("curriculum").weigh(a_step(progress=0.5))
    assert weights.local is None
    assert weights.shared is None


@pytest.mark.parametrize("key", ["start_weight", "end_weight"])
def test_a_negative_weight_is_refused(key: str) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        started("curriculum", {key: -1})
