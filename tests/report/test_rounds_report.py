"""Accuracy over rounds: means over seeds, and the round in which a recipe is passed."""

from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from accord.core.errors import AccordError
from accord.record.rows import COLUMNS, Row
from accord.report.rounds import passing_round, show_rounds


def row(recipe: str, number: int, accuracy: float, seed: int = 0, **more: Any) -> Row:
    setting = {"dataset": "digits", "partition": "dirichlet", "alpha": 0.1, "clients": 5}
    told = {"recipe": recipe, "fusion": "average", "round": number, "epoch": number, "seed": seed}
    return {**dict.fromkeys(COLUMNS), **setting, **told, "accuracy": accuracy, **more}


ROWS = [
    *(row("fedavg", n, accuracy) for n, accuracy in enumerate((0.2, 0.5, 0.4, 0.8), 1)),
    *(row("fedavg", n, accuracy, 1) for n, accuracy in enumerate((0.4, 0.7, 0.6, 0.9), 1)),
    row("once", 1, 0.5),
    row("once", 1, 0.6, 1),
    row("best", 1, 0.9),
    row("half", 1, 0.1),
    row("half", 1, 0.3, epoch=2),
    row("central", 1, 0.99, partition="pooled", alpha=None, clients=1),
]


def shown(rows: list[Row], width: int = 200) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        for table in show_rounds(rows, width):
            console.print(table)
    return captured.get()


def fields(text: str, start: str) -> list[list[str]]:
    return [line.split()[2:] for line in text.splitlines() if line.strip().startswith(start)]


def test_curves_are_means_over_seeds_and_the_last_checkpoint_of_a_round_counts() -> None:
    text = shown(ROWS)
    assert "digits, dirichlet, α 0.1, 5 clients: accuracy % after each round" in text
    assert fields(text, "fedavg (average)") == [["30.0", "60.0", "50.0", "85.0"]]
    assert fields(text, "half (average)") == [["30.0"], ["30.0", "1"]]
    assert "central" not in text  # it belongs to no partition


def test_a_recipe_is_passed_in_the_first_round_that_reaches_it() -> None:
    text = shown(ROWS)
    assert fields(text, "once (average)") == [["55.0"], ["55.0", "2"]]
    assert fields(text, "best (average)") == [["90.0"], ["90.0", "–"]]
    curve = {1: 0.2, 2: 0.5, 3: 0.4, 4: 0.8}
    assert passing_round(curve, {1: 0.5}) == 2
    assert passing_round(curve, {1: 0.51}) == 4
    assert passing_round(curve, {1: 0.9}) is None
    # Another method of several rounds is judged by its last round.
    assert passing_round(curve, {1: 0.9, 2: 0.3}) == 2


def test_a_narrow_terminal_shows_some_rounds_with_the_first_and_the_last() -> None:
    rows = [row("fedavg", n, n / 100) for n in range(1, 51)]
    head = next(line for line in shown(rows, 100).splitlines() if "recipe (fusion)" in line)
    columns = head.split()[2:]
    assert (columns[0], columns[-1]) == ("1", "50")
    assert 3 <= len(columns) <= 6


def test_the_only_round_of_a_recipe_is_never_left_out() -> None:
    """A recipe that stands on others has one row, in a round of its own."""
    rows = [row("turns", n, 0.3) for n in (5, 10, 15, 20)]
    rows += [row("below", 1, 0.4), row("middle", 17, 0.5), row("sums", 21, 0.6)]
    rows += [row("many", n, 0.2) for n in (2, 3, 4, 6, 7, 8, 9, 11, 12)]
    text = shown(rows, 110)
    for recipe, value in (("middle", "50.0"), ("sums", "60.0"), ("below", "40.0")):
        assert fields(text, f"{recipe} (average)")[0] == [value]


def test_a_run_without_rounds_is_told() -> None:
    with pytest.raises(AccordError, match="no trial of this run has several rounds"):
        show_rounds([row("once", 1, 0.5)], 100)


def test_without_one_shot_recipes_there_is_one_table() -> None:
    text = shown([one for one in ROWS if one["recipe"] == "fedavg"])
    assert "accuracy % after each round" in text
    assert "rounds until a method" not in text
