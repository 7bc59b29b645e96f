"""What people read: means with their spread, honest about a single seed, and never cut off."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord.core.errors import AccordError
from accord.record.rows import COLUMNS
from accord.report.comparison import compare
from accord.report.results import Results


def row(recipe: str, seed: int, accuracy: float, **changes: Any) -> dict[str, Any]:
    return {
        **dict.fromkeys(COLUMNS),
        "study": "s", "dataset": "digits", "partition": "dirichlet", "alpha": 0.1, "clients": 5,
        "recipe": recipe, "fusion": "features", "seed": seed, "round": 1, "epoch": 10,
        "accuracy": accuracy,
        "balanced_accuracy": accuracy, "worst_class": 0.0, "ece": 0.1, "validation_accuracy": None,
        "personal_accuracy": None, "exchanges": 1, "loss": 1.0, "upload_bytes": 5_000_000,
        "download_bytes": 1, "seconds": 3.0,
        "trial": f"{recipe}-{seed}", **changes,
    }  # fmt: skip


def shown(results: Results, width: int = 160) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(results.table(width))
    return captured.get()


def test_means_and_sample_standard_deviations() -> None:
    results = Results(Path("r"), [row("fafi", 0, 0.5), row("fafi", 1, 0.6), row("fafi", 2, 0.7)])
    assert "60.0 ± 10.0" in shown(results)
    assert "over 3 seeds" in shown(results)


def test_one_seed_is_labelled_as_such() -> None:
    text = shown(Results(Path("r"), [row("fafi", 0, 0.5)]))
    assert "one seed" in text
    assert "±" not in text


def test_only_the_last_epoch_of_a_trial_is_shown() -> None:
    rows = [row("fafi", 0, 0.2, epoch=5), row("fafi", 0, 0.5, epoch=10)]
    (line,) = compare(rows)
    assert line["accuracy"] == [0.5]


def test_best_first_and_references_last() -> None:
    rows = [
        row("central", 0, 0.9, partition="pooled", alpha=None),
        row("local-only", 0, 0.3),
        row("a", 0, 0.4),
        row("b", 0, 0.5),
    ]
    names = [line["recipe"] for line in compare(rows)]
    assert names == ["b", "a", "local-only", "central"]


def test_settings_are_not_mixed() -> None:
    rows = [row("fafi", 0, 0.5), row("fafi", 0, 0.9, alpha=0.5)]
    assert [line["accuracy"] for line in compare(rows)] == [[0.9], [0.5]]
    axes = [row("fafi", 0, 0.5, **{"budget.lr": 0.1}), row("fafi", 0, 0.6, **{"budget.lr": 0.2})]
    assert len(compare(axes)) == 2
    assert "budget.lr" in shown(Results(Path("r"), axes))


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_narrow_terminal_cuts_columns_not_words(width: int) -> None:
    rows = [row("etf-uncertainty-repaired", seed, 0.5) for seed in (0, 1)]
    text = shown(Results(Path("r"), rows), width)
    assert "…" not in text
    assert "etf-uncertainty-repaired" in text
    assert "50.0 ± 0.0" in text


def test_no_results_yet_is_an_empty_table() -> None:
    assert compare([]) == []
    assert "accuracy" in shown(Results(Path("r"), []))


def test_lines_that_differ_in_clients_or_seeds_show_it() -> None:
    rows = [row("a", 0, 0.5, clients=2), row("a", 0, 0.6, clients=3), row("a", 1, 0.7, clients=3)]
    text = shown(Results(Path("r"), rows))
    assert "clients" in text
    assert "seeds" in text
    assert "the seeds of each line" in text


def test_one_seed_twice_is_an_error_never_a_spread() -> None:
    rows = [row("a", 0, 0.5), row("a", 0, 0.7, trial="another")]
    with pytest.raises(AccordError, match="two results of a, seed 0"):
        compare(rows)


def test_names_are_never_taken_for_markup() -> None:
    text = shown(Results(Path("runs/m[/x]"), [row("a", 0, 0.5, dataset="[red]d[/red]")]))
    assert "m[/x]" in text
    assert "[red]d[/red]" in text


def test_personal_accuracy_has_a_column_where_a_fusion_makes_personal_nets() -> None:
    reference = row("local-only", 0, 0.3, fusion="client-mean", personal_accuracy=0.7)
    assert "personal %" not in shown(Results(Path("r"), [row("fafi", 0, 0.5), reference]))
    split = row("fafi", 0, 0.5, fusion="split", personal_accuracy=0.6)
    text = shown(Results(Path("r"), [split, reference]))
    assert "personal %" in text
    assert "60.0" in text
    assert "70.0" in text  # what it is to be compared with
