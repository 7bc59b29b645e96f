"""Who comes is added and who goes is subtracted, once, by the right name, from sums that can be."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import accord
from accord.core.errors import AccordError
from accord.federation.pooled_sums import Total
from accord.messages import Upload
from accord.record.record import Record
from closed_run import RECIPE, SMALL, Raw, accuracy, late, run, scores, uploads
from core.cases import looped
from tests_support import digits


def test_who_leaves_was_never_there(record: Path, tmp_path: Path) -> None:
    gone = scores(record, tmp_path / "a", remove=["2"])
    never = scores(record, tmp_path / "b", without=["2"])
    torch.testing.assert_close(gone, never, rtol=1e-4, atol=1e-3)
    assert accuracy(record, "ridge-without-2") < accuracy(record)


def test_a_changed_model_says_whose_images_it_is_of(record: Path, tmp_path: Path) -> None:
    late = tmp_path / "late.safetensors"
    upload = Upload.load(uploads(record)[3])
    Upload(upload.header.model_copy(update={"client": "late"}), upload.tensors).save(late)
    scores(record, tmp_path, remove=["1", "3"], add=[late])
    origin = json.loads((tmp_path / "model" / "model.json").read_text())["origin"]
    assert origin["clients"] == ["0", "2", "late"]
    rows = {row["fusion"]: row for row in Record(record).rows()}
    row = rows["ridge-with-late-without-1-3"]
    assert row["clients"] == 3
    stayed = [path for path in uploads(record) if path.stem in ("client-0", "client-2")]
    assert row["upload_bytes"] == sum(path.stat().st_size for path in (*stayed, late))
    assert row["seconds"] is None  # nobody's upload was read to find out
    assert "ridge-with-late" in str(accord.load(record))


def test_who_comes_later_was_always_there(record: Path, tmp_path: Path) -> None:
    everybody = scores(record, tmp_path / "a")
    late = tmp_path / "late.safetensors"
    (path,) = [path for path in uploads(record) if path.stem == "client-3"]
    upload = Upload.load(path)
    Upload(upload.header.model_copy(update={"client": "late"}), upload.tensors).save(late)
    came = scores(record, tmp_path / "b", remove=["3"], add=[late])
    torch.testing.assert_close(came, everybody, rtol=1e-4, atol=1e-3)
    assert "ridge-with-late-without-3" in {row["fusion"] for row in Record(record).rows()}


def test_nobody_elses_upload_is_read_when_one_leaves(record: Path, tmp_path: Path) -> None:
    expected = scores(record, tmp_path / "a", remove=["1"])
    for path in uploads(record):
        if path.stem != "client-1":
            stat = path.stat()
            path.write_bytes(b"\0" * stat.st_size)  # same size and time: it looks untouched
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    shutil.rmtree(tmp_path / "a")
    again = scores(record, tmp_path / "a", remove=["1"])
    assert torch.equal(again, expected)


def test_a_client_can_be_forgotten(record: Path, tmp_path: Path) -> None:
    gone = scores(record, tmp_path / "a", remove=["2"])
    (file,) = [path for path in uploads(record) if path.stem == "client-2"]
    file.unlink()
    (file.parent.parent / "total.safetensors").unlink()
    forgotten = scores(record, tmp_path / "b", without=["2"])
    torch.testing.assert_close(forgotten, gone, rtol=1e-4, atol=1e-3)


@looped(
    ("options", "said"),
    [
        ({"remove": ["9"]}, "--remove: closed.* has no client '9'"),
        ({"remove": ["0", "1", "2", "3"]}, "leaves no client"),
        ({"add": ["{uploads}/client-0.safetensors"]}, "would count twice"),
        ({"add": ["nowhere.safetensors"]}, "nowhere.safetensors: expected one upload"),
    ],
)
def test_changes_that_cannot_be_made_are_refused(record: Path, options: Raw, said: str) -> None:
    folder = str(uploads(record)[0].parent)
    options = {k: [v.format(uploads=folder) for v in values] for k, values in options.items()}
    with pytest.raises(AccordError, match=said):
        accord.fuse(record, ["ridge"], workers=1, quiet=True, **options)


def test_sums_of_another_map_are_refused_by_name(record: Path, tmp_path: Path) -> None:
    other = run(tmp_path / "other", recipes=[{**RECIPE, "map": {"blocks": [{**SMALL, "size": 4}]}}])
    shutil.copyfile(uploads(other)[0], uploads(record)[0])
    with pytest.raises(AccordError, match=r"client-0\.safetensors answers another briefing"):
        accord.fuse(record, ["{use: ridge, penalty: 1.0, as: again}"], workers=1, quiet=True)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1e6])
def test_a_scatter_of_no_images_is_refused(record: Path, value: float) -> None:
    path = uploads(record)[0]
    upload = Upload.load(path)
    upload.tensors["scatter"][0] = value
    upload.save(path)
    with pytest.raises(AccordError, match=r"client-0\.safetensors: "):
        accord.fuse(record, ["{use: ridge, penalty: 1.0, as: again}"], workers=1, quiet=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"without": ["2"], "remove": ["2"]}, "--without 2 --remove 2: .* Name each client once"),
        ({"remove": ["0", "1", "2", "3"]}, "--remove leaves no client"),
        ({"without": ["0", "1", "2", "3"]}, "--without leaves no client"),
    ],
)
def test_a_client_is_named_once(record: Path, options: Raw, said: str) -> None:
    with pytest.raises(AccordError, match=said):
        accord.fuse(record, ["ridge"], workers=1, quiet=True, **options)


def test_who_comes_counts_once(record: Path, tmp_path: Path) -> None:
    file = late(record, tmp_path / "late.safetensors", "late", [0, 1, 2])
    with pytest.raises(AccordError, match=r"client late is one of .* already, or was added"):
        accord.fuse(record, ["ridge"], add=[file, file], workers=1, quiet=True)
    nameless = late(record, tmp_path / "nameless.safetensors", "", [0, 1, 2])
    with pytest.raises(AccordError, match="the client it names: expected a name"):
        accord.fuse(record, ["ridge"], add=[nameless], workers=1, quiet=True)


def test_another_upload_of_the_same_name_is_not_taken_for_the_first(
    record: Path, tmp_path: Path
) -> None:
    file = late(record, tmp_path / "late.safetensors", "late", [0, 1, 2])
    accord.fuse(record, ["ridge"], add=[file], workers=1, quiet=True)
    accord.fuse(record, ["ridge"], add=[file], workers=1, quiet=True)
    late(record, file, "late", [3, 4, 5, 6])
    with pytest.raises(AccordError, match="'ridge-with-late' already, with another set of uploads"):
        accord.fuse(record, ["ridge"], add=[file], workers=1, quiet=True)


@pytest.mark.parametrize("damage", ["lacks", "nan"])
def test_a_kept_total_that_is_damaged_is_made_again(record: Path, damage: str) -> None:
    (path,) = record.glob("trials/closed*/total.safetensors")
    total = Total.load(path)
    tensors = dict(total.tensors)
    if damage == "lacks":
        tensors.pop("scatter")
    else:
        tensors["scatter"] = torch.full_like(tensors["scatter"], float("nan"))
    Total(total.header, tensors).save(path)
    accord.fuse(record, ["{use: ridge, as: again}"], workers=1, quiet=True)
    assert accuracy(record, "again") == accuracy(record)


def test_a_replaced_upload_is_refused_though_another_one_leaves(
    record: Path, tmp_path: Path
) -> None:
    late(record, uploads(record)[0], "0", [0, 1, 2])  # fewer images than client 0 had
    for options in ({"remove": ["1"]}, {"add": [late(record, tmp_path / "x", "new", [3])]}):
        with pytest.raises(AccordError, match="expected the upload of client 0, with label counts"):
            accord.fuse(record, ["ridge"], workers=1, quiet=True, **options)


def test_who_is_left_out_leaves_somebody(record: Path, tmp_path: Path) -> None:
    file = late(record, tmp_path / "late.safetensors", "late", list(range(10)))
    everybody = ["0", "1", "2", "3"]
    with pytest.raises(AccordError, match="--without leaves no client"):
        accord.fuse(record, ["ridge"], without=everybody, add=[file], workers=1, quiet=True)
    accord.fuse(record, ["ridge"], remove=everybody, add=[file], workers=1, quiet=True)
    assert accuracy(record, "ridge-with-late-without-0-1-2-3") > 0.1


def test_a_rule_named_alone_is_the_trials_own(tmp_path: Path) -> None:
    recipe = {**RECIPE, "fusion": {"prior": "data"}}
    out = run(tmp_path / "run", recipes=[recipe])
    accord.fuse(out, ["ridge"], remove=["1"], workers=1, quiet=True)
    accord.fuse(out, ["ridge"], workers=1, quiet=True, save=tmp_path / "model")
    (trial,) = Record(out).trials()
    priors = {spec["as"]: spec["prior"] for spec in trial.info()["config"]["fusions"]}
    assert priors == {"ridge": "data", "ridge-without-1": "data"}
    assert not Record(out).asked()["fusions"]  # the study asks for nothing new
    with pytest.raises(AccordError, match="has a row 'ridge' already, with another prior"):
        accord.fuse(out, [{"use": "ridge", "prior": "uniform"}], workers=1, quiet=True)


def test_newcomers_are_told_from_positions(tmp_path: Path) -> None:
    images, labels = digits()
    named = np.array(["1", "2", "3"])[np.arange(len(labels)) % 3]
    np.savez(tmp_path / "scans.npz", images=images, labels=labels, hospital=named)
    partition = {"scheme": "by-column", "column": "hospital"}
    out = run(
        tmp_path / "run",
        data={"name": "npz", "path": str(tmp_path / "scans.npz")},
        partition=partition,
    )
    first = tmp_path / "first.safetensors"
    upload = Upload.load(uploads(out)[0])

    def called(name: str) -> Path:
        Upload(upload.header.model_copy(update={"client": name}), upload.tensors).save(first)
        return first

    def origin(**options: Any) -> list[str]:
        folder = tmp_path / "model"
        accord.fuse(out, ["ridge"], workers=1, quiet=True, save=folder, **options)
        found = json.loads((folder / "model.json").read_text())["origin"]["clients"]
        return [str(name) for name in found]

    assert origin(remove=["1"], add=[called("1")]) == ["2", "3", "1"]  # corrected
    assert origin(remove=["1"], add=[called("0")]) == ["2", "3", "0"]  # not position 0
    with pytest.raises(AccordError, match=r"client 2 is one of .* already"):
        origin(remove=["1"], add=[called("2")])
    measured = Record(out).trials()[0].measures()["checkpoints"][-1]["fusions"]
    assert measured["ridge-with-1-without-1"]["without"] == ["1"]
    uploads(out)[1].unlink()
    with pytest.raises(AccordError, match=r"the upload of client 2, .* with --without 2"):
        origin()
