"""The coordinates of trials in names and bars, and finished trials after a grid has grown."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

import accord
from accord.core.names import SAFE
from accord.record.record import Record
from accord.study.coordinates import axis_labels, coordinates, readable_name, short, title
from accord.study.study import load_study

Raw = dict[str, Any]


def test_names_and_titles_show_every_axis_that_matters(study: Raw) -> None:
    study |= {
        "budget": {"epochs": [1, 2], "lr": [0.05, 0.1]},
        "recipes": [{"use": "fafi", "as": "mine"}, "closed-form-small", "central"],
        "partition": {"alpha": [0.5, 0.123456789], "clients": [2, 3]},
        "seeds": [0, 7],
    }
    trials = load_study(study).trials()
    names = [readable_name(trial) for trial in trials]
    assert len(set(names)) == len(set(map(title, trials))) == len(trials)
    assert "mine-a0.123456789-clients2-epochs1-lr0.05-s7" in names
    assert "mine (α 0.5, clients 3, epochs 2, lr 0.1, seed 0)" in map(title, trials)
    assert "central-epochs1-lr0.1-s0" in names
    assert "closed-form-small-a0.5-clients3-epochs1-lr0.1-s0" in names  # it has one epoch
    plain = load_study({**study, "budget": {}, "partition": {"clients": 3}}).trials()[0]
    assert (readable_name(plain), coordinates(plain)) == ("mine-a0.5-s0", {})


def test_axes_with_the_same_last_word_have_longer_labels() -> None:
    axes = ("net.backbone", "teacher.backbone", "budget.lr", "data.name", "partition.scheme")
    assert list(axis_labels(axes).values()) == ["net.backbone", "teacher.backbone", "lr", "", ""]


def test_names_of_datasets_and_schemes_stand_alone(study: Raw) -> None:
    study |= {"partition": {"scheme": ["iid", "dirichlet"]}, "net": {"backbone": ["conv4"]}}
    names = [readable_name(trial) for trial in load_study(study).trials()]
    assert names == ["fafi-iid-backbone_conv4-s0", "fafi-a0.5-dirichlet-backbone_conv4-s0"]


def test_short_values() -> None:
    for value, text in ((5, "5"), (0.1, "0.1"), (1.0, "1"), (1e-5, "1e-05"), (True, "true"),
                        (None, "none"), ("resnet10", "resnet10"), (-1, "-1")):  # fmt: skip
        assert short(value) == text
    one, other = short("/data/a/images.npz"), short("/data/b/images.npz")
    assert one != other
    assert one.startswith("images.npz~")
    assert short({"size": 32}) != short({"size": 64})


VALUES = st.one_of(
    st.text(), st.integers(), st.floats(allow_nan=False), st.lists(st.text(), max_size=3)
)


@settings(max_examples=200, deadline=None)
@example("-:0", "")
@example("a" * 20 + "._" + "b" * 14, "")
@given(VALUES, VALUES)
def test_short_values_are_safe_and_differ(one: Any, other: Any) -> None:
    text = short(one)
    assert len(text) <= 25
    assert SAFE.fullmatch(text.replace("~", "x").lstrip("-"))
    if text == short(other):
        assert one == other or str(one).lower() == str(other).lower() or float(one) == float(other)


def state(run: Path) -> dict[str, int]:
    """The uploads of all trials and the times of their last change."""
    files = run.glob("trials/*/uploads/*.safetensors")
    return {str(path): path.stat().st_mtime_ns for path in files}


def test_nothing_is_trained_again_when_a_grid_grows(study: Raw, tmp_path: Path) -> None:
    """A trial is found by its key, although its name is older than an axis."""
    study |= {
        "data": {"name": "digits", "train_limit": 60, "test_limit": 30},
        "budget": {"epochs": 1, "batch": 32},
        "partition": {"alpha": 0.5, "clients": 2},
        "recipes": ["fafi", {"use": "fafi", "as": "fafi-epochs1", "fusion": "average"}, "central"],
    }
    for overrides, trials in (
        (["budget.epochs=2"], 3),
        (["budget.epochs=[1,2]"], 6),
    ):
        accord.run(study, overrides=overrides, out=tmp_path / "long", workers=1, quiet=True)
        assert len(Record(tmp_path / "long").trials()) == trials
    before = state(tmp_path / "long")
    assert len(before) == 2 * (2 + 2 + 1)
    # The record knows the trials of all its cells, and finds them again.
    accord.run(tmp_path / "long" / "study.yaml", out=tmp_path / "long", workers=1, quiet=True)
    assert state(tmp_path / "long") == before
    rows = accord.fuse(tmp_path / "long", ["classwise"], workers=1, quiet=True).rows
    assert sum(row["fusion"] == "classwise" for row in rows) == 4

    before = {}
    for overrides, trials in (
        ([], 3),
        (["seeds=[0,1]"], 6),
        (["seeds=[0,1]", "partition.alpha=[0.5,0.1]"], 10),
        (["seeds=[0,1]", "partition.alpha=[0.5,0.1]", "budget.lr=[0.05,0.01]"], 20),
        (["seeds=[0,1]", "partition.clients=3", "budget.lr=0.05"], 24),
    ):
        results = accord.run(
            study, overrides=overrides, out=tmp_path / "wide", workers=1, quiet=True
        )
        assert not results.failures
        found = state(tmp_path / "wide")
        assert before.items() <= found.items()
        assert len(Record(tmp_path / "wide").trials()) == trials
        before = found
    names = [trial.id.rpartition("-")[0] for trial in Record(tmp_path / "wide").trials()]
    assert len(set(names)) == len(names)  # no two read alike, also without the key
    assert "fafi-a0.5-s0" in names
    assert "fafi-epochs1-a0.1-lr0.01-s1" in names
    assert "fafi-a0.5-clients3-lr0.05-s0" in names
    rows = accord.fuse(
        tmp_path / "wide", ["classwise"], trial="fafi-a0.5-s0", workers=1, quiet=True
    ).rows
    assert [row["seed"] for row in rows if row["fusion"] == "classwise"] == [0]
