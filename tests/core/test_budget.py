"""The learning rate's schedule over all rounds, and changed budgets."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.optim.lr_scheduler import MultiStepLR

from accord.core.budget import Budget
from accord.core.config import parse
from accord.core.errors import AccordError
from tests_support import brief_for, images_of, train


@settings(max_examples=40, deadline=None)
@given(st.sets(st.integers(1, 30), min_size=1), st.sampled_from([0.1, 0.2, 0.5, 1.0]))
def test_multistep_is_the_schedule_of_torch(milestones: set[int], gamma: float) -> None:
    budget = Budget(schedule="multistep", milestones=tuple(sorted(milestones)), gamma=gamma)
    sgd = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    reference = MultiStepLR(sgd, sorted(milestones), gamma)
    for epoch in range(35):
        expected = sgd.param_groups[0]["lr"]
        # Only whole epochs count, whatever the progress within the epoch is.
        assert budget.lr_factor(0.123, epoch) == pytest.approx(expected, rel=1e-12)
        sgd.step()
        reference.step()


def test_a_client_follows_the_milestones_over_all_rounds() -> None:
    """Round 2 of two-epoch rounds begins with epoch 3, so a milestone at 3 is inside of it."""
    steps: dict[str, Any] = {"schedule": "multistep", "milestones": (1, 3), "gamma": 0.1}
    first = brief_for("fedavg", epochs=2, lr=0.5, **steps)
    header = first.header.model_copy(update={"round": 2, "rounds": 2})
    for briefing, expected in (
        (first, [0.5, 0.05]),
        (type(first)(header, first.tensors), [0.05, 0.005]),
    ):
        upload = train(images_of([0, 1, 2, 3]), briefing, "0")
        assert [event["lr"] for event in upload.header.telemetry] == pytest.approx(expected)


def test_mistakes_are_explained() -> None:
    cases = {
        "needs milestones": {"schedule": "multistep"},
        "are for the schedule multistep": {"milestones": [3]},
        "rising order": {"schedule": "multistep", "milestones": [3, 3]},
        "greater than or equal to 1": {"schedule": "multistep", "milestones": [0, 3]},
        "'budget.gamma'": {"schedule": "multistep", "milestones": [3], "gamma": 0},
        "'multistep'": {"schedule": "steps"},
    }
    for words, values in cases.items():
        with pytest.raises(AccordError) as error:
            parse(Budget, values, "budget")
        assert words in str(error.value)


def test_a_changed_budget_forgets_what_no_longer_fits() -> None:
    steps = Budget(epochs=9, schedule="multistep", milestones=(4,), checkpoints=(3,))
    assert steps.changed({"schedule": "cosine"}).milestones == ()
    assert steps.changed({"lr": 1}).milestones == (4,)
    assert steps.changed({"epochs": 2}).checkpoints == (2,)
    assert steps.changed({"lr": 1}).checkpoints == (3, 9)
    assert steps.with_checkpoint(5).checkpoints == (3, 5, 9)


def test_a_budget_without_muon_says_nothing_of_it() -> None:
    """Briefings and the keys of records do not depend on what a trial does not use."""
    assert "muon" not in Budget().model_dump(mode="json")
    changed = Budget().changed({"muon": 0.1})
    assert changed.model_dump(mode="json")["muon"] == 0.1
    assert "muon" not in changed.changed({"muon": None}).model_dump()
