"""The summary of a trial: final, best and stable accuracy, and when thresholds are reached."""

from __future__ import annotations

import statistics
from typing import Any

import pytest

from accord.record.rows import Row
from accord.record.summary import Summary, summaries, summarise


def row(number: int, epoch: int, accuracy: float, partition: str = "dirichlet") -> Row:
    return {"round": number, "epoch": epoch, "accuracy": accuracy, "partition": partition}


def test_rounds_count_at_their_last_checkpoint() -> None:
    # Two checkpoints in each round; those in the middle of a round must not count.
    ends = (0.30, 0.62, 0.58, 0.70, 0.69, 0.66, 0.68)
    rows = [row(n, 2 * n, accuracy) for n, accuracy in enumerate(ends, 1)]
    middle = [row(n, 2 * n - 1, 0.99) for n in range(1, 8)]
    # Rows in any order.
    found = summarise([*reversed(rows), *middle])
    assert found == Summary(
        unit="round",
        final=0.68,
        best=0.70,
        best_round=4,
        best_epoch=8,
        stable=statistics.mean((0.58, 0.70, 0.69, 0.66, 0.68)),
        stable_points=5,
        reached={"60": 2, "65": 4, "70": 4, "75": None},
    )


def test_one_round_counts_in_epochs_and_so_does_a_single_machine() -> None:
    checkpoints = ((1, 2, 0.5), (1, 5, 0.65), (1, 10, 0.65))
    found = summarise([row(*point) for point in checkpoints])
    assert (found.unit, found.final, found.best) == ("epoch", 0.65, 0.65)
    assert (found.best_round, found.best_epoch) == (1, 5)  # the first of two equal points
    assert found.stable == pytest.approx(0.6)  # fewer than five points
    assert found.stable_points == 3
    assert found.reached == {"60": 5, "65": 5, "70": None, "75": None}
    alone = summarise([row(1, 1, 0.2, "pooled"), row(2, 2, 0.7, "pooled")], [0.7])
    assert (alone.unit, alone.reached) == ("epoch", {"70": 2})
    assert (alone.best_round, alone.best_epoch) == (2, 2)
    single = summarise([row(1, 10, 0.8)], [0.8, 0.801])
    assert (single.stable, single.stable_points) == (0.8, 1)
    assert single.reached == {"80": 10, "80.1": None}


def test_a_threshold_is_reached_by_the_very_fraction() -> None:
    for percent in range(1, 101):
        found = summarise([row(1, 1, percent / 100)], [percent / 100])
        assert found.reached == {f"{percent}": 1}


def test_every_fusion_in_measures_json_has_its_summary() -> None:
    def checkpoint(number: int, **accuracies: float) -> dict[str, Any]:
        fusions = {name: {"accuracy": accuracy} for name, accuracy in accuracies.items()}
        return {"round": number, "epoch": number, "fusions": fusions}

    # The second fusion was measured in the last round only.
    checkpoints = [checkpoint(1, a=0.5), checkpoint(2, a=0.6, b=0.7)]
    found = summaries(checkpoints, "dirichlet")
    assert list(found) == ["a", "b"]
    assert found["a"]["reached"]["60"] == 2
    assert (found["a"]["final"], found["a"]["stable"]) == (0.6, pytest.approx(0.55))
    assert (found["b"]["unit"], found["b"]["stable_points"]) == ("round", 1)
    assert summaries([], "dirichlet") == {}
