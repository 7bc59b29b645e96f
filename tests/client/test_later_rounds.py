"""A client in a later round: schedules, draws and learnt balances go on from the last round."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from accord.client.base import answer
from accord.client.training import Training
from accord.messages import Briefing, Memory
from tests_support import brief_for, images_of

LABELS = [0] * 20 + [1] * 13 + [4] * 7


def in_round(number: int, rounds: int, recipe: str = "fedavg", **budget: Any) -> Briefing:
    briefing = brief_for(recipe, epochs=2, batch=16, **budget)
    told = briefing.header.model_copy(update={"round": number, "rounds": rounds})
    return Briefing(told, briefing.tensors)


@pytest.mark.parametrize("schedule", ["linear", "cosine"])
def test_a_schedule_runs_over_all_rounds_and_never_starts_again(schedule: str) -> None:
    """Two rounds of two epochs have the learning rates of one round of four epochs."""
    whole = brief_for("fedavg", epochs=4, batch=16, schedule=schedule)
    expected = [event["lr"] for event in answer_events(whole)]
    found = [
        event["lr"]
        for number in (1, 2)
        for event in answer_events(in_round(number, 2, schedule=schedule))
    ]
    assert found == pytest.approx(expected)
    assert found == sorted(found, reverse=True)


def answer_events(briefing: Briefing) -> list[dict[str, Any]]:
    return list(answer(Training(images_of(LABELS), briefing, "0")).header.telemetry)


def test_epochs_are_numbered_on_and_draw_other_batches() -> None:
    first, second = (Training(images_of(LABELS), in_round(n, 2), "0") for n in (1, 2))
    assert (first.epoch, first.last_epoch) == (0, 2)
    assert (second.epoch, second.last_epoch) == (2, 4)
    assert not torch.equal(torch.cat(first._batches()), torch.cat(second._batches()))
    upload = answer(second)
    assert upload.header.epoch == 4
    assert [event["epoch"] for event in upload.header.telemetry] == [3, 4]


def test_a_balance_goes_on_from_what_it_has_learnt() -> None:
    """σ starts round 2 where it ended round 1, and not at its initial value again."""
    first = Training(images_of(LABELS), in_round(1, 2, "etf-uncertainty"), "0")
    answer(first)
    memory = first.memory()
    assert memory is not None
    assert memory.header.round == 1
    kept = dict(first.mixture.state_dict())
    second = Training(images_of(LABELS), in_round(2, 2, "etf-uncertainty"), "0", memory=memory)
    fresh = Training(images_of(LABELS), in_round(2, 2, "etf-uncertainty"), "0")
    for name, value in kept.items():
        assert torch.equal(second.mixture.state_dict()[name], value)
        assert not torch.equal(fresh.mixture.state_dict()[name], value)


def test_most_clients_keep_nothing() -> None:
    training = Training(images_of(LABELS), in_round(1, 2), "0")
    answer(training)
    assert training.memory() is None


def test_a_memory_survives_its_bytes() -> None:
    training = Training(images_of(LABELS), in_round(1, 2, "etf-uncertainty"), "0")
    memory = training.memory()
    assert memory is not None
    again = Memory.from_bytes(memory.to_bytes(), "memory")
    assert again.header == memory.header
    assert all(torch.equal(again.tensors[name], value) for name, value in memory.tensors.items())
