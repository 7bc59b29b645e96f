"""A record remembers where its images were found, and commands on it find them again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

import accord
from accord.core.errors import AccordError
from accord.core.files import read_json
from accord.record.record import Record
from accord.report.estimate import estimate
from accord.study.study import load_study
from imagefiles import labels, pixels, write_parquet

Raw = dict[str, Any]


def write_cifar(root: Path) -> None:
    for part, count, seed in (("train", 40, 0), ("test", 10, 1)):
        path = root / f"cifar10-{part}.parquet"
        write_parquet(path, pixels(count, 32, 32, 3, seed), labels(count, seed=seed))


@pytest.fixture
def run(study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a data root that is given relative to the current folder."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    write_cifar(tmp_path / "images")
    study |= {"data": {"name": "cifar10"}, "budget": {"epochs": 1, "batch": 64}}
    block = {"use": "patches", "size": 5, "count": 4, "grid": 1}  # few features, soon summed
    recipe = {"use": "closed-form-small", "map": {"blocks": [block]}, "as": "closed"}
    study |= {"recipes": [recipe], "partition": {"clients": 2, "alpha": 10}}
    out = tmp_path / "run"
    accord.run(study, out=out, data_root="../images", workers=1, quiet=True)
    assert Record(out).roots() == {"cifar10": tmp_path / "images"}
    return out


def test_later_commands_find_the_images_from_anywhere(
    run: Path, study: Raw, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = accord.fuse(run, ["ridge"], without=["0"], workers=1, quiet=True)
    assert {row["fusion"] for row in found.rows} == {"ridge", "ridge-without-0"}
    accord.run(study, overrides=["seeds=[0,1]"], out=run, workers=1, quiet=True)
    more = load_study(study, ["seeds=[0,1,2]"])
    costs = estimate(more, Record(run), None, 1).costs
    assert sum(cost.is_trial for cost in costs) == 3
    with pytest.raises(AccordError, match="no files of 'cifar10' in data"):
        accord.run(study, out=tmp_path / "other", workers=1, quiet=True)


def test_a_given_root_wins_and_a_missing_one_is_forgotten(run: Path, tmp_path: Path) -> None:
    """As for a record on another machine: neither the data root nor the cache is there."""
    (tmp_path / "images").rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "cache")
    asked: Raw = {"without": ["0"], "workers": 1, "quiet": True}
    with pytest.raises(AccordError, match="no files of 'cifar10' in data"):
        accord.fuse(run, ["ridge"], **asked)
    with pytest.raises(AccordError, match="nowhere: expected a folder that exists"):
        accord.fuse(run, ["ridge"], data_root=tmp_path / "nowhere", **asked)
    accord.fuse(run, ["ridge"], data_root=tmp_path / "moved", **asked)
    assert read_json(run / "data.json")["roots"] == {"cifar10": str(tmp_path / "moved")}
    (tmp_path / "moved").rename(Path("data"))  # the usual place is searched at last
    accord.fuse(run, ["ridge"], without=["1"], workers=1, quiet=True)
    assert Record(run).roots() == {"cifar10": Path("data").absolute()}


def test_other_images_in_the_remembered_place_are_refused(run: Path, tmp_path: Path) -> None:
    path = tmp_path / "images" / "cifar10-train.parquet"
    write_parquet(path, pixels(40, 32, 32, 3, seed=5), labels(40, seed=5))
    with pytest.raises(AccordError, match="not those this record was begun with"):
        accord.fuse(run, ["ridge"], without=["0"], workers=1, quiet=True)
