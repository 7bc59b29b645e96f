"""s(p): what falls over all local training."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from accord.core.schedules import Fall, falling

KINDS: list[Fall] = ["constant", "linear", "cosine"]
progress = st.floats(0, 1)


@pytest.mark.parametrize(
    ("kind", "quarter", "half", "end"),
    [
        ("constant", 1.0, 1.0, 1.0),
        ("linear", 0.75, 0.5, 0.0),
        ("cosine", 0.8535533905932737, 0.5, 0.0),  # ½(1 + √½) at ¼
    ],
)
def test_by_hand(kind: Fall, quarter: float, half: float, end: float) -> None:
    assert falling(kind, 0.0) == 1
    assert falling(kind, 0.25) == pytest.approx(quarter, abs=1e-15)
    assert falling(kind, 0.5) == pytest.approx(half, abs=1e-15)
    assert falling(kind, 1.0) == pytest.approx(end, abs=1e-15)


@pytest.mark.parametrize("kind", KINDS)
@given(one=progress, other=progress)
def test_it_never_rises_and_stays_between_0_and_1(kind: Fall, one: float, other: float) -> None:
    early, late = sorted((one, other))
    assert 0 <= falling(kind, late) <= falling(kind, early) <= 1


@given(p=progress)
def test_the_cosine_is_gentler_at_both_ends(p: float) -> None:
    above = falling("cosine", p) - falling("linear", p)
    assert above * (0.5 - p) >= -1e-15
