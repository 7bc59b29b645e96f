"""Confidence intervals of paired differences, and the settings of a report."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from accord.core.errors import AccordError
from accord.page.differences import difference, interval, signed
from accord.page.grid import grids_of
from accord.page.parts import Table
from accord.page.sections.headline import headline
from accord.page.subject import read_subject
from page.made import full_trial
from written_runs import over_epochs, pooled, trial, write_run


def test_the_interval_is_student_s_paired_one() -> None:
    one, two = [0.60, 0.66, 0.61, 0.70], [0.58, 0.59, 0.62, 0.64]
    values = [a - b for a, b in zip(one, two, strict=True)]
    found = difference(values)
    assert found is not None
    assert found.low is not None
    assert found.high is not None
    oracle = stats.ttest_rel(one, two).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert found.mean == pytest.approx(0.035)
    assert found.open == (oracle.low <= 0 <= oracle.high)
    # Two values by hand: t of one degree of freedom is 12.7062.
    two_only = difference([0.01, 0.03])
    assert two_only is not None
    assert two_only.high == pytest.approx(0.02 + 12.7062 * 0.0141421 / 2**0.5, rel=1e-4)


def test_one_seed_has_no_interval() -> None:
    found = difference([0.02])
    assert found is not None
    assert not found.open
    assert interval(found) == "–"
    assert difference([]) is None
    assert [signed(x) for x in (0.016, -0.0031, 0.0001, -0.0001)] == ["+1.6", "−0.3", "0.0", "0.0"]


def headline_table(run: Path, baseline: str | None = None) -> Table:
    parts = headline(read_subject([run], None, baseline))
    return next(part for part in parts if isinstance(part, Table))


def test_the_headline_table_by_hand(tmp_path: Path) -> None:
    """Two values of α; the best is bold, what cannot be told from it is marked."""
    finals = {"fafi": (0.50, 0.60), "better": (0.70, 0.82), "near": (0.72, 0.77)}
    trials = [
        trial(recipe, seed, over_epochs(0.1, value), alpha=alpha)
        for recipe, values in finals.items()
        for seed, value in enumerate(values)
        for alpha in (0.5, 0.1)
    ]
    trials += [pooled("central", seed, over_epochs(0.95)) for seed in (0, 1)]
    trials += [trial("local-only", 0, over_epochs(0.2), alpha=0.1)]
    run = write_run(tmp_path / "run", trials, {"partition": {"alpha": [0.5, 0.1]}})
    table = headline_table(run)
    assert [c.heading for c in table.columns] == [
        "recipe (fusion)", "α 0.5", "difference", "α 0.1", "difference",
    ]  # fmt: skip
    rows = {row[0].text: row[1:] for row in table.rows}
    assert list(rows) == [
        "better (average)", "near (average)", "fafi (average)", "local-only (average)",
        "central (average)",
    ]  # fmt: skip
    assert table.apart == 3  # the references are apart
    assert rows["better (average)"][0].text == "76.0 ± 8.5"
    assert rows["better (average)"][0].strong
    assert not rows["central (average)"][0].strong  # a reference is not the best recipe
    assert rows["near (average)"][0].tied  # differences +2 and −5
    assert not rows["fafi (average)"][0].tied  # differences −20 and −22: −21 ± 12.7
    assert rows["better (average)"][1].text == "+21.0"
    assert rows["better (average)"][1].under == "[+8.3, +33.7]"
    assert rows["fafi (average)"][1].text == "baseline"
    # Pooled images belong to each α, and are compared with the baseline there.
    assert rows["central (average)"][0].text == rows["central (average)"][2].text == "95.0 ± 0.0"
    assert rows["central (average)"][3].text == "+40.0"
    assert rows["local-only (average)"][0].text == "–"
    assert rows["local-only (average)"][2].under == "1 seed"
    assert rows["local-only (average)"][3].under == "–"


def test_the_baseline_is_chosen(tmp_path: Path) -> None:
    trials = [trial(name, 0, over_epochs(0.5), fusions=("x", "y")) for name in ("one", "two")]
    run = write_run(tmp_path / "run", trials)
    assert read_subject([run], None, None).baseline == "one:x"
    chosen = read_subject([run], None, "two:y")
    assert chosen.baseline == "two:y"
    assert chosen.chosen
    with pytest.raises(AccordError, match="did you mean 'two'"):
        read_subject([run], None, "twoo")
    fafi = write_run(tmp_path / "fafi", [*trials, trial("fafi", 0, over_epochs(0.5))])
    assert read_subject([fafi], None, None).baseline == "fafi:average"


def test_other_axes_make_tables_and_columns(tmp_path: Path) -> None:
    """Without several α, the first other axis gives the columns; a second one gives tables."""
    trials = [
        full_trial("fafi", 0, [0.5], config={"budget": {"lr": lr, "epochs": epochs}})
        for lr in (0.1, 0.2)
        for epochs in (5, 10)
    ]
    axes = {"budget": {"lr": [0.1, 0.2], "epochs": [5, 10]}}
    subject = read_subject([write_run(tmp_path / "run", trials, axes)], None, None)
    grids = grids_of(subject)
    words = [(grid.title, [place.column for place in grid.places]) for grid in grids]
    assert len(words) == 2
    assert {column for _, columns in words for column in columns} in (
        {"lr 0.1", "lr 0.2"},
        {"epochs 5", "epochs 10"},
    )
    assert all(title.startswith("digits, dirichlet, α 0.1, 3 clients, ") for title, _ in words)


def test_two_runs_are_told_apart(tmp_path: Path) -> None:
    """The same seed of the same recipe in two runs: each line names its run."""
    runs = [
        write_run(tmp_path / name, [trial("fafi", 0, over_epochs(value))])
        for name, value in (("first", 0.5), ("second", 0.6))
    ]
    table = next(p for p in headline(read_subject(runs, None, None)) if isinstance(p, Table))
    names = {row[0].text for row in table.rows}
    assert names == {"fafi (average) @first", "fafi (average) @second"}
