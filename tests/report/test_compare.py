"""A comparison: its figures by hand, which line is paired with which, and what is refused."""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from accord.core.errors import AccordError
from accord.report.compare.baseline import Baseline, Pair, in_order, paired
from accord.report.compare.content import compare_content
from accord.report.compare.lines import lines_of
from accord.report.compare.runs import read_runs
from accord.report.compare.table import compare_table, difference_text, reached_text
from written_runs import over_epochs, over_rounds, pooled, trial, write_run

GOALS = (0.6, 0.7)


def pairs_of(runs: Sequence[Path], baseline: str, only: str | None = None) -> list[Pair]:
    return in_order(
        paired(lines_of(read_runs(runs, only).measured, GOALS), Baseline.parse(baseline))
    )


def shown(
    pairs: Sequence[Pair], width: int = 200, unfinished: int = 0, colour: bool = False
) -> str:
    system = "standard" if colour else None
    console = Console(width=width, force_terminal=colour, color_system=system)  # type: ignore[arg-type]
    with console.capture() as captured:
        console.print(compare_table(pairs, GOALS, "fedavg", unfinished, width))
    return captured.get()


def cells(text: str, start: str) -> list[str]:
    """The cells of the first line that begins with `start`."""
    line = next(line for line in text.splitlines() if line.strip().startswith(start))
    return [cell.strip() for cell in line.strip().split("   ") if cell.strip()]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Three recipes; fedprox has another seed than fedavg and lacks seed 2."""
    trials = [
        trial("fedavg", 0, over_rounds(0.50, 0.65, 0.60), figures={"seconds": 4.0}),
        trial("fedavg", 1, over_rounds(0.40, 0.50, 0.70), figures={"train_accuracy": 0.8}),
        trial("fedavg", 2, over_rounds(0.40, 0.50, 0.55), figures={"train_accuracy": None}),
        trial("fedprox", 0, over_rounds(0.50, 0.65, 0.64)),
        trial("fedprox", 1, over_rounds(0.70, 0.60, 0.68)),
        trial("fedprox", 3, over_rounds(0.10, 0.20, 0.99)),
        pooled("central", 0, over_epochs(0.5, 0.8, 0.9)),
        pooled("central", 1, over_epochs(0.7, 0.8, 0.8)),
        pooled("central", 2, over_epochs(0.6, 0.8, 0.7)),
    ]
    return write_run(tmp_path / "run", trials)


def test_the_figures_of_each_line(run: Path) -> None:
    pairs = pairs_of([run], "fedavg")
    text = shown(pairs)
    # final: mean and deviation of 60, 70, 55; best of 65, 70, 55; stable of 58.33, 53.33, 48.33.
    final, best, stable = "61.7 ± 7.6", "63.3 ± 7.6", "53.3 ± 5.0"
    assert statistics.stdev([60, 70, 55]) == pytest.approx(7.6376, abs=1e-4)
    # 60 % in rounds 2 and 3, never with seed 2; 70 % in round 3 with seed 1 only. The gap is 30
    # with seed 0 and 10 with seed 1.
    reached = ["2.5 r (2/3)", "3 r (1/3)"]
    costs = ["3.3", "2.0", "1.0", "20.0 ± 14.1"]
    assert cells(text, "0.1   fedavg") == [
        *("0.1", "fedavg", "average", final, best, stable, "95.0 ± 0.0"),
        *(*reached, *costs, "baseline"),
    ]
    line = cells(text, "any   central")
    # Epochs, no bytes, and differences of 30, 10 and 15 points.
    assert line[7:9] == ["1.3 e", "1.7 e"]  # means of 2, 1, 1 and of 2, 1, 2
    assert line[9:12] == ["3.0", "–", "–"]
    assert line[-1] == "+18.3 ± 10.4"
    assert "mean ± standard deviation over 3 seeds" in text


def test_differences_are_paired_by_seed(run: Path) -> None:
    by_name = {pair.line.recipe: pair for pair in pairs_of([run], "fedavg")}
    found = by_name["fedprox"].differences
    assert found == {0: pytest.approx(0.04), 1: pytest.approx(-0.02)}
    # The mean of the pairs, not the difference of the means (which seed 3 would make positive).
    assert difference_text(by_name["fedprox"]) == "+1.0 ± 4.2 (2 pairs)"
    assert reached_text(by_name["fedprox"], 0.7) == "2 r (2/3)"
    content = compare_content(list(by_name.values()), GOALS, "fedavg", 0)
    line = next(one for one in content["lines"] if one["recipe"] == "fedprox")
    assert line["difference"]["mean"] == pytest.approx(0.01)
    assert line["difference"]["deviation"] == pytest.approx(statistics.stdev([0.04, -0.02]))
    assert (line["difference"]["count"], set(line["difference"]["seeds"])) == (2, {"0", "1"})
    assert line["seeds"]["3"]["final"] == 0.99
    assert line["seeds"]["1"]["best_round"] == 1
    assert line["reached"]["70"] == {"mean": 2, "deviation": statistics.stdev([1, 3]), "count": 2}
    assert line["baseline"]["recipe"] == "fedavg"


def test_other_text_of_differences(tmp_path: Path) -> None:
    trials = [
        trial("fedavg", 0, over_rounds(0.5, 0.60)),
        trial("same", 0, over_rounds(0.5, 0.6000001)),
        trial("less", 0, over_rounds(0.5, 0.45)),
        trial("stranger", 5, over_rounds(0.5, 0.7)),
    ]
    pairs = pairs_of([write_run(tmp_path / "r", trials)], "fedavg")
    texts = {pair.line.recipe: difference_text(pair) for pair in pairs}
    assert texts == {"fedavg": "baseline", "same": "0.0", "less": "-15.0", "stranger": "–"}
    assert "one seed: not conclusive" in shown(pairs)
    assert "±" not in shown(pairs).replace("±:", "")
    wide = pairs_of([tmp_path / "r"], "less")
    assert {difference_text(pair) for pair in wide} == {"+15.0", "baseline", "–"}


def test_settings_pair_with_their_own_baseline_and_pooled_with_all(tmp_path: Path) -> None:
    trials: list[dict[str, Any]] = [
        pooled("central", 0, over_epochs(0.9), config={"budget": {"lr": 0.1}}),
        pooled("central", 0, over_epochs(0.8), config={"budget": {"lr": 0.2}}),
    ]
    for lr in (0.1, 0.2):
        for alpha in (0.1, 0.5):
            for recipe, gain in (("fedavg", 0.0), ("fedprox", lr * alpha)):
                accuracy = 0.5 + alpha / 10 + lr + gain
                at: dict[str, Any] = {"alpha": alpha, "config": {"budget": {"lr": lr}}}
                trials.append(trial(recipe, 0, over_rounds(0.1, accuracy), **at))
    run = write_run(tmp_path / "r", trials, {"budget": {"lr": [0.1, 0.2]}})
    for pair in pairs_of([run], "fedavg"):
        setting = pair.line.setting
        if pair.line.recipe == "fedprox":
            gain = setting["alpha"] * setting["budget.lr"]
            assert pair.differences == {0: pytest.approx(gain)}
        if pair.line.recipe == "central":  # it could be paired with either α
            assert pair.other is None
            assert "several settings" in pair.why
    text = shown(pairs_of([run], "fedavg"))
    assert "no difference for central:average: the baseline has several settings" in text
    assert "budget.lr" in text
    for pair in pairs_of([run], "central"):
        setting, line = pair.line.setting, pair.line
        assert pair.other is not None
        assert pair.other.setting["budget.lr"] == setting["budget.lr"]
        assert pair.is_baseline == (line.recipe == "central")
        alone = 1.0 - setting["budget.lr"]
        assert pair.differences == {0: pytest.approx(line.seeds[0].summary.final - alone)}


def test_client_counts_separate_but_clients_left_out_by_a_fusion_do_not(tmp_path: Path) -> None:
    some = trial("b", 0, over_rounds(0.3, 0.65), fusions=("without-2",))
    for checkpoint in some["checkpoints"]:
        checkpoint["fusions"]["without-2"]["clients"] = 4
    trials = [
        trial("a", 0, over_rounds(0.3, 0.5)),
        trial("a", 0, over_rounds(0.3, 0.6), clients=4),
        trial("b", 0, over_rounds(0.3, 0.9), clients=9),
        some,
    ]
    pairs = pairs_of([write_run(tmp_path / "r", trials)], "a")
    texts = {p.line.dealt: difference_text(p) for p in pairs if p.line.recipe == "b"}
    assert texts == {5: "+15.0", 9: "–"}
    assert "the baseline has no trial in its setting" in shown(pairs)


def test_settings_of_rounds_do_not_separate_a_recipe_without_rounds(tmp_path: Path) -> None:
    def rounds(count: int | None) -> dict[str, Any]:
        return {"config": {"rounds": {"count": count}}}

    trials = [
        trial("once", 0, over_epochs(0.5), **rounds(None)),
        trial("fedavg", 0, over_rounds(0.5, 0.6), **rounds(2)),
        trial("fedavg", 0, over_rounds(0.5, 0.6, 0.8), **rounds(3)),
        trial("fedprox", 0, over_rounds(0.5, 0.6, 0.7), **rounds(3)),
    ]
    run = write_run(tmp_path / "r", trials, {"rounds": {"count": [2, 3]}})
    gains = [difference_text(pair) for pair in pairs_of([run], "once")]
    assert sorted(gains) == ["+10.0", "+20.0", "+30.0", "baseline"]
    by_name = {pair.line.recipe: pair for pair in pairs_of([run], "fedavg")}
    assert difference_text(by_name["fedprox"]) == "-10.0"
    assert by_name["once"].other is None


def test_the_baseline_s_fusion(tmp_path: Path) -> None:
    trials = [
        trial("a", 0, over_rounds(0.3, 0.50), fusions=("zeta", "alpha")),
        trial("b", 0, over_rounds(0.3, 0.55), clients=5),
    ]
    run = write_run(tmp_path / "r", trials)

    def gain(baseline: str) -> dict[str, str]:
        return {pair.line.name: difference_text(pair) for pair in pairs_of([run], baseline)}

    # The first in the record's order, which is not the alphabet's.
    assert gain("a") == {"a:zeta": "baseline", "a:alpha": "+10.0", "b:average": "+5.0"}
    assert gain("a:alpha") == {"a:zeta": "-10.0", "a:alpha": "baseline", "b:average": "-5.0"}
    with pytest.raises(AccordError, match=r"unknown fusion 'alfa'; did you mean 'alpha'\?"):
        gain("a:alfa")
    with pytest.raises(AccordError, match=r"unknown baseline 'c'. .* recipes are: a, b"):
        gain("c")
    with pytest.raises(AccordError, match=r"unknown run 'x'. .* runs are: r"):
        gain("a@x")


def test_runs_with_different_seeds_are_one_line(tmp_path: Path) -> None:
    one = write_run(tmp_path / "one", [trial("a", 0, over_rounds(0.3, 0.5))])
    two = write_run(
        tmp_path / "two",
        [trial("a", 1, over_rounds(0.3, 0.7)), trial("b", 1, over_rounds(0.3, 0.6))],
    )
    pairs = pairs_of([one, two, one], "a")  # a run that is given twice counts once
    assert [(pair.line.name, len(pair.line.seeds)) for pair in pairs] == [
        ("a:average", 2),
        ("b:average", 1),
    ]
    assert difference_text(pairs[1]) == "-10.0 (1 pair)"
    other = trial("a", 1, over_rounds(0.3, 0.7), config={"budget": {"epochs": 9}})
    three = write_run(tmp_path / "three", [other])
    # Another budget, without a column: their seeds must not be mixed.
    assert {pair.line.run for pair in pairs_of([one, three], "a")} == {"one", "three"}


def test_the_same_trial_in_two_runs_is_told_apart(tmp_path: Path) -> None:
    def both(a: float, b: float) -> list[dict[str, Any]]:
        return [trial("a", 0, over_rounds(0.3, a)), trial("b", 0, over_rounds(0.3, b))]

    one, two = (write_run(tmp_path / name, both(*v)) for name, v in RUNS.items())
    three = write_run(tmp_path / "three", [trial("b", 0, over_rounds(0.3, 0.9))])

    def gain(runs: Sequence[Path], baseline: str) -> dict[str, str]:
        return {pair.line.name: difference_text(pair) for pair in pairs_of(runs, baseline)}

    own = {"a:average@one": "baseline", "b:average@one": "+10.0"}
    assert gain([one, two], "a") == {**own, "a:average@two": "baseline", "b:average@two": "-5.0"}
    assert gain([one, two], "a@one") == {
        **own, "a:average@two": "+20.0", "b:average@two": "+15.0"
    }  # fmt: skip
    # A run without the baseline uses that of the only other run that has it.
    assert gain([one, three], "a") == {**own, "b:average@three": "+40.0"}
    with pytest.raises(AccordError, match=r"ambiguous: .*Choose a run, .*--baseline a:average@one"):
        gain([one, two, three], "a")
    assert gain([one, two, three], "a@two")["b:average@three"] == "+20.0"
    assert "run" in shown(pairs_of([one, two], "a")).split()
    same = write_run(tmp_path / "below" / "one", both(0.1, 0.2))
    names = {pair.line.run for pair in pairs_of([one, same], "a")}
    assert names == {one.as_posix(), same.as_posix()}


RUNS = {"one": (0.5, 0.6), "two": (0.7, 0.65)}


def test_datasets_are_shown_together_and_never_paired(tmp_path: Path) -> None:
    trials = [
        trial("fedavg", 0, over_rounds(0.3, 0.5)),
        trial("fedavg", 0, over_rounds(0.3, 0.6), dataset="svhn"),
        trial("fedprox", 0, over_rounds(0.3, 0.7), dataset="svhn"),
        trial("fedprox", 0, over_rounds(0.3, 0.7), dataset="mnist"),
        pooled("central", 0, over_epochs(0.7), dataset="cifar10"),
    ]
    pairs = pairs_of([write_run(tmp_path / "r", trials)], "fedavg")
    texts = {(p.line.setting["dataset"], p.line.recipe): difference_text(p) for p in pairs}
    assert texts["svhn", "fedprox"] == "+10.0"
    assert texts["mnist", "fedprox"] == texts["cifar10", "central"] == "–"
    text = shown(pairs)
    assert "no difference for central:average, fedprox:average: the baseline has no trial" in text
    assert all(name in text for name in ("digits", "svhn", "mnist", "cifar10"))
    # The name of a format says nothing about the images in it.
    own = [
        trial("fedavg", 0, over_rounds(0.3, 0.5), dataset="npz", images="x"),
        trial("fedprox", 0, over_rounds(0.3, 0.5), dataset="npz", images="y"),
    ]
    fedprox = pairs_of([write_run(tmp_path / "own", own)], "fedavg")[1]
    assert fedprox.other is None
    alone = [
        pooled("central", 0, over_epochs(0.7)),
        trial("b", 0, over_rounds(0.1, 0.2), dataset="z"),
    ]
    assert "digits" in shown(pairs_of([write_run(tmp_path / "alone", alone)], "b"))


def test_only_finished_trials_count(tmp_path: Path) -> None:
    trials = [
        trial("a", 0, over_rounds(0.3, 0.5)),
        trial("a", 1, over_rounds(0.3), status="running"),
        trial("b", 0, over_rounds(0.3), status="failed"),
    ]
    run = write_run(tmp_path / "r", trials)
    read = read_runs([run])
    assert (len(read.measured), read.unfinished) == (1, 2)
    assert "left out: 2 unfinished trials" in shown(pairs_of([run], "a"), unfinished=2)
    for name, some in {"none": [], "running": trials[1:]}.items():
        empty = write_run(tmp_path / name, some)
        with pytest.raises(AccordError, match=r"none of its . trials is finished"):
            read_runs([run, empty])
    assert [pair.line.recipe for pair in pairs_of([run], "a", only="a-0")] == ["a"]
    with pytest.raises(AccordError, match="no finished trial with 'b' in its name"):
        read_runs([run], "b")


def test_a_seed_twice_in_a_run_is_an_error(tmp_path: Path) -> None:
    twice = [trial("a", 0, over_rounds(0.3, 0.5)), trial("a", 0, over_rounds(0.3, 0.6))]
    with pytest.raises(AccordError, match="two results of a, seed 0"):
        pairs_of([write_run(tmp_path / "r", twice)], "a")


def test_colours_on_a_terminal_and_narrow_terminals(run: Path) -> None:
    pairs = pairs_of([run], "fedavg")
    text = shown(pairs, colour=True)
    assert re.search(r"\x1b\[32m *\+18\.3 ± 10\.4", text)
    red = shown(pairs_of([run], "central"), colour=True)
    assert re.search(r"\x1b\[31m *-18\.3 ± 10\.4", red)
    assert "\x1b[32m" not in red
    for width in (70, 80, 100, 140):
        narrow = shown(pairs, width)
        assert "…" not in narrow.replace("to …", "")
        for kept in ("final %", "61.7 ± 7.6", "+18.3 ± 10.4"):
            assert kept in narrow
        table = narrow[: narrow.index("mean ±")]
        assert max(map(len, map(str.rstrip, table.splitlines()))) <= width
        assert ("MB down" in table) == (width > 140)
    assert "with --json: MB down, seconds, MB up" in shown(pairs, 140).replace("\n", " ")


def test_names_are_never_taken_for_markup(tmp_path: Path) -> None:
    first = trial("[red]a", 0, over_rounds(0.3, 0.5), dataset="[b]d")
    other = trial("b", 0, over_rounds(0.3, 0.6), dataset="[b]d", fusions=("[/x]",))
    runs = [write_run(tmp_path / "r", [first]), write_run(tmp_path / "[s]", [first, other])]
    text = shown(pairs_of(runs, "b"))
    assert all(name in text for name in ("[red]a", "[b]d", "[/x]", "[s]"))
