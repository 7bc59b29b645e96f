"""A record is asked for more over time; it never mixes two things under one row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import accord
from accord.core.errors import AccordError
from accord.study.compatibility import joined
from accord.study.study import check_study
from records import timeless, upload_files

Raw = dict[str, Any]


def both(one: Raw, two: Raw) -> Raw:
    return joined(
        check_study(one, Path()).resolved, check_study(two, Path()).resolved, Path("runs/x")
    )


def changed(study: Raw, section: str, **values: Any) -> Raw:
    return {**study, section: {**study[section], **values}}


def test_the_same_study_joins_to_itself(study: Raw) -> None:
    assert both(study, study) == check_study(study, Path()).resolved


def test_seeds_recipes_fusions_and_axes_add_up(study: Raw) -> None:
    more = changed(
        {**study, "seeds": [1], "recipes": ["ce-ensemble"], "fusions": ["outputs"]},
        "budget",
        lr=[0.05, 0.1],
    )
    whole = both(study, changed(more, "partition", alpha=0.05))
    assert whole["seeds"] == [0, 1]
    assert [recipe["name"] for recipe in whole["recipes"]] == ["fafi", "ce-ensemble"]
    assert [fusion["as"] for fusion in whole["fusions"]] == ["outputs"]
    assert whole["budget"]["lr"] == [0.05, 0.1]
    assert whole["partition"]["alpha"] == [0.5, 0.05]
    # And asking for a part of it again takes nothing away.
    assert joined(whole, check_study(study, Path()).resolved, Path()) == whole
    check_study(whole, Path())


@pytest.mark.parametrize(
    ("section", "values"),
    [
        ("budget", {"lr": 0.1}),
        ("budget", {"lr": [0.1, 0.2]}),
        ("budget", {"checkpoints": [1]}),
        ("net", {"norm": "group"}),
        ("data", {"train_limit": 100}),
    ],
)
def test_something_else_is_refused(study: Raw, section: str, values: Raw) -> None:
    with pytest.raises(AccordError, match=f"another study: {section}.{next(iter(values))} was"):
        both(study, changed(study, section, **values))


def test_another_rule_under_the_same_name_is_refused(study: Raw) -> None:
    one = {**study, "fusions": [{"use": "outputs", "as": "x"}]}
    with pytest.raises(AccordError, match="holds 'x' with another"):
        both(one, {**study, "fusions": [{"use": "average", "as": "x"}]})
    with pytest.raises(AccordError, match="holds 'fafi' with another views"):
        both(study, {**study, "recipes": [{"use": "fafi", "views": 1, "as": "fafi"}]})


def test_a_recipe_is_remembered_after_an_absence(study: Raw, tmp_path: Path) -> None:
    def run(*recipes: Any) -> None:
        accord.run({**study, "recipes": list(recipes)}, out=tmp_path, workers=1, quiet=True)

    run({"use": "ce-ensemble", "as": "x"})
    run("fedavg-once")
    with pytest.raises(AccordError, match="holds 'x' with another views"):
        run({"use": "ce-ensemble", "views": 2, "as": "x"})
    asked = yaml.safe_load((tmp_path / "study.yaml").read_text())
    assert [recipe["name"] for recipe in asked["recipes"]] == ["x", "fedavg-once"]


def test_an_axis_that_comes_later_has_its_column_filled(study: Raw, tmp_path: Path) -> None:
    study["recipes"] = ["ce-ensemble"]
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    study["budget"]["lr"] = [0.05, 0.1]
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert sorted(row["budget.lr"] for row in timeless(tmp_path)) == ["0.05", "0.1"]
    study["budget"]["lr"] = 0.05  # a part of what was asked: fine, and nothing is lost
    assert len(accord.run(study, out=tmp_path, workers=1, quiet=True).rows) == 2


def test_images_that_changed_are_refused_and_a_moved_file_is_not(
    study: Raw, tmp_path: Path
) -> None:
    def save(name: str, seed: int) -> str:
        images = np.random.default_rng(seed).integers(0, 256, (80, 8, 8), dtype=np.uint8)
        np.savez(tmp_path / name, images=images, labels=np.arange(80) % 4)
        return str(tmp_path / name)

    study["data"] = {"name": "npz", "path": save("a.npz", 0)}
    accord.run(study, out=tmp_path / "r", workers=1, quiet=True)
    before = [path.stat().st_mtime_ns for path in upload_files(tmp_path / "r")]
    study["data"]["path"] = save("moved.npz", 0)
    accord.run(study, out=tmp_path / "r", workers=1, quiet=True)
    assert [path.stat().st_mtime_ns for path in upload_files(tmp_path / "r")] == before
    study["data"]["path"] = save("other.npz", 1)
    asked = (tmp_path / "r" / "study.yaml").read_text()
    with pytest.raises(AccordError, match=r"images of .*other\.npz are not those this record"):
        accord.run(study, out=tmp_path / "r", workers=1, quiet=True)
    assert (tmp_path / "r" / "study.yaml").read_text() == asked  # the record is what it was
    assert len(timeless(tmp_path / "r")) == 1


def test_paths_can_be_an_axis(study: Raw, tmp_path: Path) -> None:
    for seed in (0, 1):
        images = np.random.default_rng(seed).integers(0, 256, (80, 8, 8), dtype=np.uint8)
        np.savez(tmp_path / f"{seed}.npz", images=images, labels=np.arange(80) % 4)
    study["data"] = {"name": "npz", "path": ["0.npz", "1.npz"]}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    results = accord.run(tmp_path / "study.yaml", out=tmp_path / "r", workers=1, quiet=True)
    paths = [str(tmp_path / name) for name in ("0.npz", "1.npz")]  # meant from the study's file
    assert sorted(row["data.path"] for row in results.rows) == paths
    one = accord.run(
        tmp_path / "study.yaml",
        overrides=[f"data.path={paths[0]}"],
        out=tmp_path / "r",
        workers=1,
        quiet=True,
    )
    assert len(one.rows) == 2
    assert "data.path" in str(one)


def test_a_refused_folder_is_left_as_it_was(study: Raw, tmp_path: Path) -> None:
    (tmp_path / "photo.txt").write_text("mine")
    with pytest.raises(AccordError, match="not a run directory"):
        accord.run(study, out=tmp_path, workers=1, quiet=True)
    study["partition"]["clients"] = 1000
    with pytest.raises(AccordError, match="1,000 clients"):
        accord.run(study, out=tmp_path / "new", workers=1, quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["photo.txt"]
