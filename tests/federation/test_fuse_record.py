"""What fusing again does to a record: names, clients and costs stay true."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import accord
from accord.core.errors import AccordError
from accord.messages import Upload
from accord.record.record import Record
from fused import CLIENT, fafi, run_of
from tests_support import digits


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run_of(tmp_path_factory.mktemp("fused"), recipes=["fafi", "ce-ensemble"])


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def test_a_fusion_that_failed_does_not_come_back(run: Path, tmp_path: Path) -> None:
    before = (run / "study.yaml").read_text()
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "cut.png").write_bytes(b"no picture")
    spec = {"use": "distilled", "images": str(tmp_path / "bad"), "epochs": 1, "as": "de"}
    with pytest.raises(AccordError, match=r"cut\.png"):
        accord.fuse(run, [spec], workers=1, quiet=True)
    assert (run / "study.yaml").read_text() == before
    accord.fuse(run, ["standardised"], workers=1, quiet=True)
    assert "standardised" in (run / "study.yaml").read_text()


def test_a_name_in_the_results_means_one_rule_of_the_same_clients(run: Path) -> None:
    options: dict[str, Any] = {"trial": "fafi", "workers": 1, "quiet": True}
    accord.fuse(run, [{"use": "average", "as": "x"}], without=["0"], **options)
    with pytest.raises(AccordError, match="has a row 'x-without-0' already, with another"):
        accord.fuse(run, [{"use": "classwise", "as": "x"}], without=["0"], **options)
    accord.fuse(run, [{"use": "noise", "as": "noise-without-0"}], **options)
    with pytest.raises(AccordError, match="'noise-without-0' already, with another set of upl"):
        accord.fuse(run, ["noise"], without=["0"], **options)


def test_fusions_of_one_trial_are_not_asked_of_the_others(run: Path) -> None:
    spec = {"use": "outputs", "prior": True, "as": "only-fafi"}
    accord.fuse(run, [spec], trial="fafi", workers=1, quiet=True)
    accord.fuse(run, ["noise"], workers=1, quiet=True)
    found = {row["recipe"] for row in Record(run).rows() if row["fusion"] == "only-fafi"}
    assert found == {"fafi"}


def test_what_is_left_out_costs_nothing(run: Path) -> None:
    accord.fuse(run, ["noise"], trial="fafi", without=["0"], workers=1, quiet=True)
    rows = {row["fusion"]: row for row in Record(run).rows() if row["recipe"] == "fafi"}
    less, full = rows["noise-without-0"], rows["features"]
    assert less["clients"] == full["clients"] - 1
    assert less["upload_bytes"] < full["upload_bytes"]


def test_an_upload_of_other_images_is_refused(run: Path) -> None:
    path = fafi(run).path / "uploads" / CLIENT
    upload = Upload.load(path)
    counts = upload.tensors["label_counts"].flip(0)
    Upload(upload.header, {**upload.tensors, "label_counts": counts}).save(path)
    with pytest.raises(AccordError, match=rf"{CLIENT}: .*of which the client has no image"):
        accord.fuse(run, ["noise"], trial="fafi", workers=1, quiet=True)


def test_clients_are_known_by_the_values_of_their_column(tmp_path: Path) -> None:
    images, labels = digits()
    hospitals = np.array(["1", "Charité/Mitte", "Ost-2"])[np.arange(len(labels)) % 3]
    np.savez(tmp_path / "scans.npz", images=images, labels=labels, hospital=hospitals)
    study = {
        "name": "hospitals",
        "data": {"name": "npz", "path": str(tmp_path / "scans.npz")},
        "partition": {"scheme": "by-column", "column": "hospital"},
        "recipes": ["closed-form-small"],
        "references": False,
    }
    out = tmp_path / "run"
    accord.run(study, out=out, workers=1, quiet=True)
    accord.fuse(out, ["ridge"], without=["1"], workers=1, quiet=True, save=tmp_path / "model")
    kept = json.loads((tmp_path / "model" / "model.json").read_text())["origin"]["clients"]
    assert kept == ["Charité/Mitte", "Ost-2"]
    accord.fuse(out, ["ridge"], remove=["Charité/Mitte"], workers=1, quiet=True)
    with pytest.raises(
        AccordError, match=r"no client '0'. Its clients are 1, Charité/Mitte, Ost-2"
    ):
        accord.fuse(out, ["ridge"], without=["0"], workers=1, quiet=True)
