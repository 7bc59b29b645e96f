"""A real study on a folder of sites: each left out in turn, continued, and fused again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import accord
from accord.cli import main
from accord.core.errors import AccordError
from accord.data.allocation import open_allocation
from accord.federation.plan import Plan
from accord.messages import Briefing
from accord.record.record import Record
from accord.study.study import check_study, load_study
from accord.study.teacher_study import teacher_study
from closed_run import RECIPE
from imagefiles import save_image
from tests_support import digits

Raw = dict[str, Any]
HELD: dict[str, tuple[int, ...]] = {"north": (0, 1, 8), "south": (1, 3, 8), "west": (3, 8, 9)}
EACH = 12  # images of each class of each site
TOGETHER = {**RECIPE, "pooled": True, "as": "together"}
RECIPES = ("closed", "together", "central")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Real digits of three sites, site/class/image."""
    place = tmp_path_factory.mktemp("data") / "sites"
    images, labels = digits()
    for number, (site, classes) in enumerate(HELD.items()):
        for label in classes:
            rows = np.flatnonzero(labels == label)[number * EACH : (number + 1) * EACH]
            for row in rows.tolist():
                save_image(place / site / f"digit-{label}" / f"{row}.png", images[row])
    return place


def study_of(folder: Path, **partition: Any) -> Raw:
    return {
        "name": "sites",
        "data": {"name": "folder", "path": str(folder), "test_per_client": 0.25, "public": 0.2},
        "partition": {"scheme": "by-folder", **partition},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 1, "batch": 32},
        "recipes": [RECIPE, TOGETHER, "central"],
        "references": False,
    }


@pytest.fixture(scope="module")
def made(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A record that grows: all sites, then one left out, then each."""
    out = tmp_path_factory.mktemp("run") / "all"
    trained: dict[Path, int] = {}
    for leave_out in (None, "west", "each"):
        accord.run(study_of(folder, leave_out=leave_out), out=out, workers=1, quiet=True)
        files = {path: path.stat().st_mtime_ns for path in out.glob("trials/*/uploads/*")}
        assert trained.items() <= files.items()  # nothing is trained twice
        trained = files
    return out


def rows_of(run: Path, **wanted: str) -> list[Raw]:
    rows = Record(run).rows()
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_each_site_is_left_out_in_turn(made: Path) -> None:
    left_out = ["nobody", *HELD]
    for recipe in RECIPES:
        found = rows_of(made, recipe=recipe)
        assert sorted(row["partition.leave_out"] for row in found) == sorted(left_out)
        # Those of which a pooled trial has the images are counted, as in the partition.
        assert {row["partition.leave_out"]: row["clients"] for row in found} == {
            name: 3 if name == "nobody" else 2 for name in left_out
        }
    names = [trial.id for trial in Record(made).trials()]
    assert sum("without_north-s0" in name for name in names) == 3
    infos = {trial.id: trial.info() for trial in Record(made).trials()}
    (one,) = [info for name, info in infos.items() if "closed-without_south" in name]
    assert list(one["client_files"]) == ["north", "west"]
    assert one["partition"] == "by-folder"
    (pool,) = [info for name, info in infos.items() if "central-without_south" in name]
    assert pool["partition"] == "pooled by-folder"
    assert np.sum(pool["label_counts"], 0).tolist() == np.sum(one["label_counts"], 0).tolist()


def test_pooled_images_are_those_of_the_sites_that_take_part(made: Path) -> None:
    """Sums do not depend on the partition: a pooled closed form has the same result."""
    apart = {row["partition.leave_out"]: row for row in rows_of(made, recipe="closed")}
    for row in rows_of(made, recipe="together"):
        other = apart[row["partition.leave_out"]]
        assert row["accuracy"] == other["accuracy"]
        assert row["loss"] == pytest.approx(other["loss"], rel=1e-3)
    accuracies = {name: row["accuracy"] for name, row in apart.items()}
    assert accuracies["nobody"] > 0.9
    # Only north has zeros and only west has nines: 3 of the 22 test images each.
    assert max(accuracies["north"], accuracies["west"]) <= 19 / 22


def test_no_image_has_two_uses_in_the_record(made: Path) -> None:
    paths = sorted((made / "allocations").glob("*.json"))
    assert len(paths) == 8  # with and without pooling
    for path in paths:
        opened = open_allocation(path)
        assert opened.site_names == ("north", "south", "west")
        used = [opened.client(k).rows for k in range(len(opened.partition.names))]
        used += [opened.part(name).rows for name in ("test", "public", "own")]
        every = np.concatenate(used)
        assert len(np.unique(every)) == len(every)
        assert np.bincount(opened.owners("own")).tolist() == [7, 7, 7]  # a quarter of 29
        assert np.bincount(opened.owners("test")).tolist() == [8, 7, 7]  # 22 of 3 · 36
        left_out = opened.scheme.leave_out
        if left_out:
            assert opened.site_names.index(left_out) not in opened.owners("public")


def test_a_record_remembers_what_it_was_asked(made: Path) -> None:
    assert Record(made).asked()["partition"]["leave_out"] == [None, "west", "each"]
    assert all(trial.info()["status"] == "finished" for trial in Record(made).trials())
    assert len(Record(made).trials()) == 3 * 4


def test_its_uploads_can_be_fused_again(made: Path, tmp_path: Path) -> None:
    model = tmp_path / "model"
    trial = "closed-without_south"
    accord.fuse(made, ["ridge"], trial=trial, without=["west"], workers=1, quiet=True, save=model)
    assert json.loads((model / "model.json").read_text())["origin"]["clients"] == ["north"]
    with pytest.raises(AccordError, match=r"no client 'south'.* Its clients are north, west"):
        accord.fuse(made, ["ridge"], trial=trial, without=["south"], workers=1, quiet=True)


def test_trials_are_expanded_once(folder: Path) -> None:
    raw = study_of(folder, leave_out=[None, "west", "each"])
    plan = Plan(check_study(raw, Path()), None, lambda _: None)
    found = [(t.recipe.name, t.setup.partition.leave_out) for t in plan.trials]
    assert len(found) == len(set(found)) == 3 * 4
    drawn = {**raw, "partition": {"scheme": "iid", "clients": 2, "leave_out": "each"}}
    drawn["data"] = {"name": "digits", "test_per_client": 0.1}
    plan = Plan(check_study(drawn, Path()), None, lambda _: None)
    found = [(t.recipe.name, t.setup.partition.leave_out) for t in plan.trials]
    assert found == [(name, client) for name in RECIPES for client in "01"]


def test_central_has_one_trial_unless_the_partition_chooses_its_images() -> None:
    raw: Raw = {
        "name": "x",
        "data": {"name": "digits"},
        "partition": {"alpha": [0.5, 0.1]},
        "recipes": ["central"],
        "references": False,
    }
    assert len(load_study(raw).trials()) == 1
    raw["data"] = {"name": "digits", "test_per_client": 0.2}
    assert [trial.setup.partition.skew for trial in load_study(raw).trials()] == [0.5, 0.1]


def test_a_teacher_sees_the_public_images_of_the_sites(folder: Path) -> None:
    checked = teacher_study(study_of(folder))
    (setup,) = checked.setups
    assert (setup.partition.name, setup.partition.pooled) == ("by-folder", 0)
    plan = Plan(checked, None, lambda _: None)
    (trial,) = plan.trials
    ours = Plan(check_study(study_of(folder), Path()), None, lambda _: None)
    theirs = ours.allocation(ours.trials[0])[1].part("public").rows
    assert plan.allocation(trial)[1].client(0).rows.tolist() == theirs.tolist()
    with pytest.raises(AccordError, match=r"one teacher is trained; found each"):
        teacher_study(study_of(folder, leave_out="each"))


def test_a_briefing_knows_the_classes_of_all_sites(folder: Path, tmp_path: Path) -> None:
    study = {**study_of(folder), "recipes": ["fedavg-once"]}
    accord.brief(study, tmp_path / "briefing.safetensors", workers=1, quiet=True)
    header = Briefing.load(tmp_path / "briefing.safetensors").header
    assert header.classes == ("digit-0", "digit-1", "digit-3", "digit-8", "digit-9")
    upload = accord.answer(
        tmp_path / "briefing.safetensors", folder / "south", "south", keep=tmp_path / "keep"
    )
    assert upload.tensors["label_counts"].tolist() == [0, EACH, EACH, EACH, 0]


def test_sites_without_a_part_are_told(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (40, 8, 8), dtype=np.uint8)
    arrays: Raw = {"x_train": images[:30], "y_train": np.arange(30) % 3}
    arrays |= {"x_test": images[30:], "y_test": np.arange(10) % 3}
    trained = np.array(["a", "b", "c"])[np.arange(30) // 10]
    arrays["y_train"][20:] = 2
    measured = np.array(["a", "z"])[np.arange(10) % 2]
    np.savez(tmp_path / "d.npz", **arrays, site_train=trained, site_test=measured)
    study = study_of(tmp_path)
    study["data"] = {"name": "npz", "path": str(tmp_path / "d.npz"), "classes": [0, 1]}
    study["partition"] = {"scheme": "by-column", "column": "site"}
    told: list[str] = []
    Plan(check_study(study, Path()), None, told.append).check()
    sites = [line for line in told if "1 site " in line]
    assert sites == [
        "1 site has no training image of the chosen classes, and so no part in the training (c)",
        "1 site has no test images (b)",
        "1 site has test images, but no training images (z)",
    ]
    np.savez(tmp_path / "d.npz", **arrays, site_train=trained)
    told.clear()
    study["data"]["test_per_client"] = 0.05
    Plan(check_study(study, Path()), None, told.append).check()
    assert any("the test part has no column 'site'" in line for line in told)
    assert any("2 clients hold out no test images" in line for line in told)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"path": "north"}, "north/digit-0: expected a folder of a site"),
        ({"train_limit": 8}, "one image for each class of each of the 3 sites; found 8"),
        ({"leave_out": "nroth"}, "no client 'nroth'; did you mean 'north'?"),
        ({"scheme": "copies", "leave_out": "0"}, "the scheme 'copies' is not one of them"),
        ({"scheme": "dirichlet", "leave_out": 9, "clients": 3}, "there is no client '9'"),
    ],
)
def test_mistakes_are_explained(
    folder: Path,
    tmp_path: Path,
    changes: Raw,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    study = study_of(folder / changes.pop("path", ""))
    for key, value in changes.items():
        study["data" if key == "train_limit" else "partition"][key] = value
    (tmp_path / "study.yaml").write_text(yaml.safe_dump(study))
    words = ["run", str(tmp_path / "study.yaml"), "--out", str(tmp_path / "run"), "--workers", "1"]
    monkeypatch.setattr(sys, "argv", ["accord", *words])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 2
    assert said in " ".join(capsys.readouterr().err.split())
