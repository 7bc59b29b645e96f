"""The live view: it fits into a terminal of any size, and its figures are right."""

from __future__ import annotations

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from accord.report.live.layout import fitted, plain, share_out
from accord.report.live.picture import Bar, Picture, Point, TrialLine, by_relevance, standings

SIZES = ((200, 60), (100, 30), (80, 24), (40, 10), (20, 5), (10, 3), (10, 1))


def drawn(picture: Picture, width: int, height: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, height=height, no_color=True)
    with console.capture() as captured:
        console.print(fitted(picture, width, height))
    return captured.get().splitlines()


def line(recipe: str, seed: int, status: str, accuracy: float | None = None) -> TrialLine:
    point = None if accuracy is None else Point("features", 6, accuracy)
    reason = "client 2: out of memory" if status == "failed" else ""
    group = f"{recipe} (α 0.1)"
    title = f"{recipe} (α 0.1, seed {seed})"
    return TrialLine(title, group, status, point, reason, changed=float(seed))  # type: ignore[arg-type]


def study_of(count: int) -> Picture:
    """A study with `count` trials of every kind, and as many clients at work."""
    kinds = ("finished", "running", "failed")
    trials = tuple(line(f"recipe-{i % 10}", i, kinds[i % 3], i / 100) for i in range(count))
    bars = tuple(Bar(one.title, f"client {i}", 0.5, "epoch 3 of 6") for i, one in enumerate(trials))
    notes = ("fafi-s0 cannot be read: damaged \x1b[2J [/red]",)
    return Picture(
        "runs/x", trials, 3 * count, bars, 0.3, "1 min 40 s, about 3 min left", notes,
        standings(trials),
    )  # fmt: skip


@pytest.mark.parametrize("count", [1, 5, 100])
def test_the_view_fits_into_every_terminal(count: int) -> None:
    picture = study_of(count)
    for width, height in SIZES:
        lines = drawn(picture, width, height)
        assert len(lines) <= max(1, height - 1), (width, height)
        assert all(cell_len(one) <= width for one in lines), (width, height)
        assert not any("\x1b" in one for one in lines)
        assert "30%" in lines[-1] or width < 20
    text = "\n".join(drawn(picture, 100, 30))
    assert "runs/x" in text
    assert "of 3 trials" in text or count > 1
    assert "[/red]" in text  # a name is never read as markup
    if count == 100:
        assert "34 of 300 trials finished, 33 running, 200 waiting, 33 failed" in text
        assert text.count("more at work") == text.count("more trials") == 1


def test_nothing_is_left_out_if_there_is_room() -> None:
    picture = study_of(5)
    text = "\n".join(drawn(picture, 120, 60))
    assert "more" not in text
    for trial in picture.trials:
        assert trial.title in text
    assert text.count("epoch 3 of 6") == 5


def test_lines_are_shared_out_fairly() -> None:
    assert share_out([2, 10, 1], 100) == [2, 10, 1]
    assert share_out([2, 10, 10], 9) == [2, 4, 3]
    assert share_out([5, 5], 0) == [0, 0]
    assert share_out([], 3) == []


def test_accuracies_are_means_over_seeds() -> None:
    trials = [
        line("fafi", 0, "finished", 0.5), line("fafi", 1, "finished", 0.7),
        line("fafi", 2, "running", 0.4), line("fafi", 3, "running"),
        line("other", 0, "failed", 0.9), line("third", 0, "running", 0.65),
    ]  # fmt: skip
    best, fafi = standings(trials)
    assert (best.group, best.accuracy(), best.so_far()) == ("third (α 0.1)", "–", "65.0 at epoch 6")
    assert fafi.accuracy() == "60.0 ± 14.1"  # standard deviation of 50 and 70: 10·√2
    assert fafi.so_far() == "40.0 at epoch 6"
    (one,) = standings(trials[:1])
    assert one.accuracy() == "50.0"


def test_the_most_relevant_trials_come_first() -> None:
    kinds = ("finished", "failed", "running", "finished")
    found = by_relevance(line("r", seed, kind) for seed, kind in enumerate(kinds))
    assert [(one.status, one.changed) for one in found] == [
        ("failed", 1), ("running", 2), ("finished", 3), ("finished", 0),
    ]  # fmt: skip


def test_the_headline_says_what_is_known() -> None:
    trials = (line("r", 0, "finished", 0.5), line("r", 1, "running"))
    assert Picture("x", trials, 4).headline() == "1 of 4 trials finished, 1 running, 2 waiting"
    unknown = Picture("x", trials, written=False).headline()
    assert unknown == "1 trials finished, 1 interrupted, an unknown number waiting"


def test_plain_text_has_every_part() -> None:
    lines = plain(study_of(100))
    assert lines[0].startswith("runs/x: 34 of 300 trials finished")
    assert lines[1] == "30% done, 1 min 40 s, about 3 min left"
    assert "  and 88 more at work" in lines
    assert any(one.startswith("  failed: recipe-") and "out of memory" in one for one in lines)
    assert all(one.isprintable() for one in lines)
