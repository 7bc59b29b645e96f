"""A step that cannot fit into memory is refused before any work."""

from __future__ import annotations

import pytest

from accord.core.errors import AccordError
from accord.federation import room
from accord.federation.plan import Plan
from accord.messages import NetHeader
from accord.study.study import load_study


def test_values_grow_with_the_pixels() -> None:
    header = NetHeader(backbone="conv4", norm="batch", head="linear")
    one = room.values_of_one(header, (1, 32, 32), 10)
    assert one > 32 * 32 * 64  # the first layer alone has 64 channels
    assert room.values_of_one(header, (1, 1024, 512), 10) == 512 * one


def test_a_step_that_needs_too_much_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    study = {
        "name": "large",
        "data": {"name": "digits", "train_limit": 100},
        "net": {"backbone": "conv4"},
        "recipes": ["ce-ensemble"],
        "references": False,
    }
    Plan(load_study(study), None, print).check()
    monkeypatch.setattr(room, "memory", lambda: 10**6)
    with pytest.raises(AccordError, match=r"a step with .* needs at least"):
        Plan(load_study(study), None, print).check()
