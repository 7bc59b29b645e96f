"""`confidence`: w = w₁·(1 − CE_ema/CE_first), clipped to [w₀, w₁]."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.balance import Weigher
from accord.core.errors import AccordError
from balance.support import a_step, rule, started
from core.cases import looped


def weight(weigher: Weigher, loss: float) -> float:
    """w of a step whose cross-entropy is `loss`, beside another term that does not matter."""
    return float(weigher.weigh(a_step(terms={"supcon": 9.0, "cross-entropy": loss})).align)


def test_by_hand() -> None:
    weigher = started("confidence", {"highest": 2.0, "memory": 0.5})
    assert weight(weigher, 4.0) == pytest.approx(0.1)  # the first loss: nothing known, w₀
    assert weight(weigher, 2.0) == pytest.approx(2 * (1 - 3 / 4))  # average 3
    assert weight(weigher, 1.0) == pytest.approx(2 * (1 - 2 / 4))  # average 2
    assert weigher.readings(0.5).lambda_effective == pytest.approx(1.0)


def test_a_long_memory_follows_slowly() -> None:
    weigher = started("confidence")
    weight(weigher, 2.0)
    # Average 0.9·2 + 0.1·0 = 1.8, then 1.62.
    assert weight(weigher, 0.0) == pytest.approx(0.1)
    assert weight(weigher, 0.0) == pytest.approx(0.19)


def test_a_loss_that_rises_leaves_the_lowest_weight() -> None:
    weigher = started("confidence", {"lowest": 0.2})
    weight(weigher, 1.0)
    assert weight(weigher, 100.0) == pytest.approx(0.2)


def test_mastery_gives_the_highest_weight() -> None:
    weigher = started("confidence", {"highest": 3.0, "memory": 0.0})
    weight(weigher, 1.0)
    assert weight(weigher, 0.0) == 3.0


def test_a_first_loss_of_zero_does_not_divide() -> None:
    weigher = started("confidence")
    assert weight(weigher, 0.0) == pytest.approx(0.1)
    assert weight(weigher, 1.0) == pytest.approx(0.1)


def test_before_the_first_step_the_dial_shows_the_lowest() -> None:
    assert started("confidence").readings(0.0).lambda_raw == pytest.approx(0.1)


@settings(max_examples=50, deadline=None)
@given(losses=st.lists(st.floats(0, 1000, width=32), min_size=1, max_size=20))
def test_the_weight_stays_between_its_ends(losses: list[float]) -> None:
    weigher = started("confidence")
    for loss in losses:
        assert 0.1 - 1e-7 <= weight(weigher, loss) <= 1


def test_it_watches_the_term_it_is_told() -> None:
    assert rule("confidence").watched() == "cross-entropy"
    params = {"watch": "supcon", "memory": 0.0}
    assert rule("confidence", params).watched() == "supcon"
    weigher = started("confidence", params)
    weigher.weigh(a_step(terms={"supcon": 4.0, "cross-entropy": 1.0}))
    weights = weigher.weigh(a_step(terms={"supcon": 1.0, "cross-entropy": 1.0}))
    assert float(weights.align) == pytest.approx(0.75)


def test_ends_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(AccordError, match=r"balance.*lowest should not exceed highest"):
        started("confidence", {"lowest": 2, "highest": 1})


@looped(("key", "value"), [("lowest", -1), ("highest", -1), ("memory", 1), ("memory", -0.1)])
def test_a_parameter_out_of_range_is_refused(key: str, value: float) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        started("confidence", {key: value})
