"""The details in measures.json of real runs: they agree with the images and with fusing again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.core.errors import AccordError
from accord.core.files import write_json
from accord.data.allocation import open_allocation
from accord.federation.measuring import blocks
from accord.federation.measuring.blocks import step_of
from accord.fusion.details import neighbour_accuracy
from accord.fusion.evaluate import run_net
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.report.example_images import example_images
from tests_support import digits

Raw = dict[str, Any]
DETAILS = {"examples", "leave_one_out"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Digits of six classes, sorted by class and without a test part, in blocks of 17 images."""
    folder = tmp_path_factory.mktemp("details")
    pixels, labels = digits()
    order = np.argsort(labels[:400], kind="stable")
    np.savez(folder / "sorted.npz", images=pixels[order], labels=labels[order])
    study = {
        "name": "details",
        "data": {"name": "npz", "path": str(folder / "sorted.npz"), "classes": [9, 2, 3, 4, 5, 6]},
        "partition": {"alpha": 1.0, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 2, "batch": 32, "checkpoints": [1, 2]},
        "recipes": ["fafi", "closed-form-small", "local-only", "central"],
        "fusions": ["classwise", "average", {"use": "split", "blocks": 1}],
        "references": False,
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", 17)
        accord.run(study, out=folder / "run", workers=1, quiet=True)
    return folder / "run"


def trial(run: Path, recipe: str) -> TrialFolder:
    return next(t for t in Record(run).trials() if t.info()["recipe"] == recipe)


def test_each_kind_of_fusion_has_its_own_details(run: Path) -> None:
    first, last = trial(run, "fafi").measures()["checkpoints"]
    for fusion in first["fusions"].values():
        assert not DETAILS & set(fusion)
    expected = {"features": DETAILS, "classwise": DETAILS}
    expected |= {"average": {"examples"}, "split": {"examples"}}
    assert {name: DETAILS & set(found) for name, found in last["fusions"].items()} == expected
    for checkpoint in (first, last):
        for client in checkpoint["clients"]:
            assert 0 <= client["neighbours"] <= 1
        for found in checkpoint["fusions"].values():
            images = sum(map(sum, found["confusion"]))
            gaps = [n / images * abs(a - c) for n, c, a in found["reliability"]]
            assert sum(gaps) == pytest.approx(found["ece"])
    (closed,) = trial(run, "closed-form-small").measures()["checkpoints"]
    assert closed["clients"] == []  # clients that send sums have no nets
    assert DETAILS & set(closed["fusions"]["ridge"]) == {"examples"}
    references = trial(run, "local-only").measures()["checkpoints"][-1]["fusions"]
    assert not any(DETAILS & set(references[name]) for name in ("client-best", "client-mean"))
    assert references["client-mean"]["reliability"] is None
    assert references["client-best"]["reliability"] is not None
    pooled = trial(run, "central").measures()["checkpoints"][-1]["fusions"]["outputs"]
    assert DETAILS & set(pooled) == {"examples"}  # one client cannot be left out


def test_neighbours_are_those_among_spread_images(run: Path) -> None:
    path = next((run / "allocations").glob("*.json"))  # all trials have the same test images
    test = open_allocation(path).part("test")
    assert len(test) > 2 * 17
    some = test.slice(0, len(test), -(-len(test) // 17))
    assert len(np.unique(some.labels)) == 6 > len(np.unique(test.labels[:17]))
    one = trial(run, "fafi")
    paths = sorted(one.path.glob("uploads/client-?.safetensors"))
    files = UploadFiles(paths, Briefing.load(one.briefing))
    found = [c["neighbours"] for c in one.measures()["checkpoints"][-1]["clients"]]
    for index, neighbours in enumerate(found):
        features = run_net(files, index, some, "cpu").features
        assert neighbours == neighbour_accuracy(features, torch.from_numpy(some.labels))


def test_leave_one_out_is_what_fusing_without_the_client_gives(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run, tmp_path / "run")
    path = tmp_path / "run"
    last = trial(path, "fafi").measures()["checkpoints"][-1]["fusions"]
    for client in ("0", "1", "2"):
        accord.fuse(
            *(path, ["features", "classwise"]),
            trial=trial(path, "fafi").id,
            without=[client],
            workers=1,
            quiet=True,
        )
    again = trial(path, "fafi").measures()["checkpoints"][-1]["fusions"]
    for name in ("features", "classwise"):
        found = last[name]["leave_one_out"]
        assert (found["part"], found["all"]) == ("test", last[name]["accuracy"])
        assert found["without"] == {
            client: again[f"{name}-without-{client}"]["accuracy"] for client in ("0", "1", "2")
        }
    assert set(again["features-without-1"]["leave_one_out"]["without"]) == {"0", "2"}


def test_validation_images_are_used_if_there_are_any(study: Raw, tmp_path: Path) -> None:
    study["data"] |= {"validation": 0.2}
    path = tmp_path / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    (one,) = Record(path).trials()
    before = one.measures()["checkpoints"][-1]
    found = before["fusions"]["features"]["leave_one_out"]
    assert found["part"] == "validation"
    assert found["all"] == before["fusions"]["features"]["validation_accuracy"]
    # A record of an older version has no details; only fusions that are measured now get them.
    for fusion in before["fusions"].values():
        for key in (*DETAILS, "reliability"):
            del fusion[key]
    for client in before["clients"]:
        del client["neighbours"]
    write_json(one.path / "measures.json", {"checkpoints": [before]})
    accord.fuse(path, ["features"], without=["2"], workers=1, quiet=True)
    (after,) = one.measures()["checkpoints"]
    left = after["fusions"].pop("features-without-2")
    assert after == before
    assert found["without"]["2"] == left["validation_accuracy"]
    assert {*DETAILS, "reliability"} <= set(left)
    assert accord.load(path).rows


def test_examples_are_found_again(run: Path) -> None:
    pixels, labels = digits()
    kept = [9, 2, 3, 4, 5, 6]
    known = {pixels[row].tobytes(): int(labels[row]) for row in range(400)}
    one = trial(run, "fafi")
    for name, found in one.measures()["checkpoints"][-1]["fusions"].items():
        examples = found["examples"]
        pictures = example_images(Record(run), one.info(), examples)
        assert len(pictures) == len(examples) > 6
        for example, picture in zip(examples, pictures, strict=True):
            assert (str(picture.dtype), picture.shape) == ("uint8", (8, 8, 1))
            assert known[picture.tobytes()] == kept[example["label"]], name
        assert len({example["label"] for example in examples}) > 2  # the images are spread


def test_images_that_changed_or_are_gone_are_refused(run: Path, tmp_path: Path) -> None:
    shutil.copytree(run.parent, tmp_path / "copy")
    one, path = trial(run, "fafi"), tmp_path / "copy" / "sorted.npz"
    info = one.info()
    info["config"]["data"]["path"] = str(path)
    examples = [{"image": 3}]
    assert len(example_images(Record(run), info, examples)) == 1
    with pytest.raises(AccordError, match="not those that"):
        example_images(Record(run), info, [{"image": 400}])
    with pytest.raises(AccordError, match="damaged"):
        example_images(Record(run), {"id": "odd"}, examples)
    content = dict(np.load(path))
    np.savez(path, images=255 - content["images"], labels=content["labels"])
    with pytest.raises(AccordError, match="not those that"):
        example_images(Record(run), info, examples)
    path.unlink()
    with pytest.raises(AccordError, match=r"sorted\.npz"):
        example_images(Record(run), info, examples)


def test_images_sorted_by_class_are_spread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "BLOCK", 10)
    mixed, in_order = np.arange(95) % 5, np.sort(np.arange(95) % 5)
    assert step_of(mixed) == 1
    assert step_of(in_order) == 10  # 0, 10, …, 90: ten images
    assert step_of(in_order[:10]) == 1  # the first block holds all images
    assert step_of(in_order[:0]) == 1
