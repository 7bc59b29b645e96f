"""The table of sites: its figures by hand, its references, and what it says if there is nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import accord
from accord.cli import app, main
from accord.core.errors import AccordError
from accord.report.sites import settings, show_sites
from written_runs import over_epochs, trial, write_run

Sites = dict[str, dict[str, Any]]


def at(accuracy: float | None, **changes: Any) -> dict[str, Any]:
    """The figures of one site."""
    figures = dict.fromkeys(("balanced_accuracy", "worst_class", "ece", "loss"), accuracy)
    known = {"took_part": True, "images": 10, "accuracy": accuracy, "own_accuracy": None}
    return {**known, **figures, **changes}


def measured(recipe: str, seed: int, *sites: Sites, fusion: str = "f", **more: Any) -> Any:
    """A trial with one checkpoint for each of `sites`."""
    found = trial(recipe, seed, over_epochs(*[0.5] * len(sites)), fusions=[fusion], **more)
    for checkpoint, one in zip(found["checkpoints"], sites, strict=True):
        checkpoint["fusions"][fusion]["sites"] = one
    return found


def shown(run: Path, width: int = 160) -> str:
    console = Console(width=width, no_color=True)
    with console.capture() as captured:
        console.print(*show_sites(accord.load(run).sites(), "r", width))
    return captured.get()


def cells(text: str, *words: str) -> list[str]:
    """The line with these words, with single spaces."""
    return [" ".join(line.split()) for line in text.splitlines() if all(w in line for w in words)]


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two seeds of a recipe and both references, and another partition that has its own ones."""
    dirichlet = {"partition": {"scheme": "dirichlet"}}
    none = at(None, images=0)
    trials = []
    for seed, more in ((0, 0.0), (1, 0.1)):
        trials += [
            measured(
                "fafi",
                seed,
                {"x": at(0.1), "y": at(0.2), "z": none},
                {"x": at(0.6 + more), "y": at(0.5, images=12 + seed, took_part=False), "z": none},
                config=dirichlet,
            ),
            measured("local-only", seed, {"x": at(0.3), "y": at(0.4), "z": none}, config=dirichlet),
            measured(
                "central", seed, {"x": at(0.9), "y": at(0.8), "z": none},
                partition="pooled dirichlet", alpha=0.1, clients=1, config=dirichlet,
            ),
            measured("fafi", seed, {"x": at(0.7)}, alpha=0.5, config=dirichlet),
            measured("local-only", seed, {"x": at(0.2)}, alpha=0.5, config=dirichlet),
        ]  # fmt: skip
    return write_run(tmp_path / "run", trials)


def test_the_last_epoch_of_each_site_stands_beside_both_bounds(run: Path) -> None:
    text = shown(run)
    expected = [
        "fafi (f) y (took no part) 12–13 50.0 ± 0.0 50.0 ± 0.0 50.0 ± 0.0 50.0 ± 0.0 40.0 ± 0.0 "
        "80.0 ± 0.0",
        "fafi (f) x 10 65.0 ± 7.1 65.0 ± 7.1 65.0 ± 7.1 65.0 ± 7.1 30.0 ± 0.0 90.0 ± 0.0",
        "fafi (f) z 0 – – – – – –",
    ]
    assert cells(text, "fafi")[:3] == expected  # the worst site is first
    assert cells(text, "fafi")[3] == (
        "fafi (f) x 10 70.0 ± 0.0 70.0 ± 0.0 70.0 ± 0.0 70.0 ± 0.0 20.0 ± 0.0"
    )
    assert len(cells(text, "central (f)")) == 3  # only in its own setting
    assert "a site has other images for another seed" in text  # 12 or 13
    assert "without held-out images: z" in text
    assert "α 0.1, 3 sites" in text
    assert "α 0.5, 1 sites" in text


def test_bounds_are_those_of_the_same_seed_and_of_their_last_epoch(tmp_path: Path) -> None:
    trials = [
        measured("fafi", 0, {"x": at(0.5)}),
        measured("fafi", 1, {"x": at(0.5)}),
        measured("local-only", 1, {"x": at(0.1)}, {"x": at(0.2)}),
    ]
    rows = accord.load(write_run(tmp_path / "run", trials)).sites()
    found = {(r["recipe"], r["seed"], r["epoch"]): r["local_accuracy"] for r in rows}
    assert found["fafi", 0, 1] is None
    assert found["fafi", 1, 1] == 0.2


def test_bounds_fit_grid_axes_except_those_that_they_do_not_use(tmp_path: Path) -> None:
    axes: dict[str, dict[str, Any]] = {
        "net": {"backbone": ["a", "b"]},
        "rounds": {"fraction": [0.5, 1.0]},
    }

    def config(backbone: str, fraction: float) -> dict[str, Any]:
        return {"net": {"backbone": backbone}, "rounds": {"fraction": fraction}}

    trials = [
        *(measured("fedavg", 0, {"x": at(0.5)}, config=config(b, 0.5)) for b in "ab"),
        measured("local-only", 0, {"x": at(0.3)}, config=config("a", 1.0)),
        measured("local-only", 0, {"x": at(0.4)}, config=config("b", 1.0)),
    ]
    run = write_run(tmp_path / "run", trials, axes)
    found = {
        r["net.backbone"]: r["local_accuracy"]
        for r in accord.load(run).sites()
        if r["recipe"] == "fedavg"
    }
    assert found == {"a": 0.3, "b": 0.4}
    assert [len(lines) for lines in settings(accord.load(run).sites())] == [2, 2]


def test_a_site_that_is_left_out_is_compared_with_its_own_net(tmp_path: Path) -> None:
    def config(site: str | None) -> dict[str, Any]:
        return {"partition": {"scheme": "by-column", "leave_out": site}}

    def leaving(recipe: str, site: str | None, *accuracies: float | None, **more: Any) -> Any:
        sites = {name: at(a) for name, a in zip("xy", accuracies, strict=True)}
        where = {"partition": "by-column", "alpha": None, **more}
        return measured(recipe, 0, sites, config=config(site), **where)

    trials = [
        leaving("fafi", "x", 0.5, 0.6),
        leaving("local-only", "x", None, 0.2),
        leaving("local-only", "y", 0.3, None),
        leaving("central", "x", 0.8, 0.9, partition="pooled by-column"),
        leaving("central", "y", 0.7, 0.6, partition="pooled by-column"),
    ]
    run = write_run(tmp_path / "run", trials, {"partition": {"leave_out": "each"}})
    rows = [row for row in accord.load(run).sites() if row["recipe"] == "fafi"]
    assert [(r["local_accuracy"], r["central_accuracy"]) for r in rows] == [(0.3, 0.8), (0.2, 0.9)]
    text = shown(run)
    assert "by-column, 2 sites, partition.leave_out x" in text
    assert cells(text, "central (f)") == [
        "central (f) x 10 80.0 80.0 80.0 80.0 30.0 80.0",
        "central (f) y 10 90.0 90.0 90.0 90.0 20.0 90.0",
    ]


def test_bounds_alone_are_shown_as_lines(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [measured("local-only", 0, {"x": at(0.3)})])
    assert cells(shown(run), "local-only") == ["local-only (f) x 10 30.0 30.0 30.0 30.0 30.0"]


def test_two_trials_of_one_seed_are_an_error(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [measured("a", 0, {"x": at(0.3)})] * 2)
    with pytest.raises(AccordError, match="two results of a, seed 0"):
        shown(run)


@pytest.mark.parametrize("width", [60, 80, 120])
def test_many_sites_fit_into_a_narrow_terminal(width: int, tmp_path: Path) -> None:
    names = [f"hospital {k} [/red]" for k in range(50)]
    sites = {name: at(0.01 * k) for k, name in enumerate(names)}
    run = write_run(tmp_path / "run", [measured("fafi", 0, sites), measured("fafi", 1, sites)])
    text = shown(run, width)
    assert max(map(len, text.splitlines())) <= width
    lines = cells(text, "fafi")
    assert len(lines) == 50
    assert [line.split()[2:4] for line in lines] == [name.split()[:2] for name in names]
    assert all("[/red]" in line for line in lines)


def test_mistakes_are_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = write_run(tmp_path / "run", [trial("fafi", 0, over_epochs(0.5))])
    mistakes = {
        ("--sites",): "no held-out images of single sites",
        ("--sites", "--json"): "data.test_per_client",
        ("--sites", "--rounds"): "Use one of them",
    }
    for options, said in mistakes.items():
        monkeypatch.setattr("sys.argv", ["accord", "results", str(run), *options])
        with pytest.raises(SystemExit) as ended:
            main()
        assert ended.value.code == 2
        shown = capsys.readouterr()
        assert said in shown.err
        assert shown.out == ""


def test_the_command_shows_the_table_or_json(run: Path) -> None:
    result = CliRunner().invoke(app, ["results", str(run), "--sites"])
    assert result.exit_code == 0
    assert "(took no part)" in result.output
    result = CliRunner().invoke(app, ["results", str(run), "--sites", "--json"])
    assert json.loads(result.output)["rows"] == accord.load(run).sites()
    frame = accord.load(run).site_frame()
    assert frame[frame.recipe == "fafi"].groupby("site").accuracy.max()["x"] == pytest.approx(0.7)


def test_the_results_table_has_columns_of_sites_if_there_are_sites(tmp_path: Path) -> None:
    plain = write_run(tmp_path / "plain", [trial("fafi", 0, over_epochs(0.5))])
    assert "worst site" not in str(accord.load(plain))
    known = trial("fafi", 0, over_epochs(0.5))
    known["checkpoints"][0]["fusions"]["average"] |= {"site_worst": 0.25, "site_spread": 0.125}
    text = str(accord.load(write_run(tmp_path / "known", [known])))
    assert "worst site %" in text
    assert "± sites %" in text
    assert cells(text, "fafi")[0].count("25.0") == 1
    assert "12.5" in text
