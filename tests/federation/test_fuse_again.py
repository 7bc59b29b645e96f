"""Fusing again, keeping a model, asking it, and giving it away: real runs on digits."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import accord
from accord.cli import app
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.fusion.evaluate import combiner_of, run_net, voting
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, Upload
from accord.model.export import export_onnx
from accord.model.predict import predict
from accord.model.predictor import Predictor
from accord.record.record import Record
from tests_support import digits, images_of

Raw = dict[str, Any]
TEST = images_of([label for label in range(10) for _ in range(4)])


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three clients, with public images."""
    study = {
        "name": "fused",
        "data": {"name": "digits", "train_limit": 200, "test_limit": 80, "public": 0.2},
        "partition": {"alpha": 0.3, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 2, "batch": 32},
        "recipes": ["fafi", "ce-ensemble"],
        "references": False,
    }
    path = tmp_path_factory.mktemp("fused") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    return path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def fafi(run: Path) -> str:
    return next(trial.id for trial in Record(run).trials() if trial.id.startswith("fafi"))


def fuse(run: Path, *names: Any, **options: Any) -> accord.Results:
    return accord.fuse(run, list(names), workers=1, quiet=True, **options)


def test_other_fusions_are_added_and_nobody_trains(run: Path) -> None:
    before = {path: path.read_bytes() for path in run.glob("trials/*/uploads/*")}
    old = {(row["recipe"], row["fusion"]): row["accuracy"] for row in Record(run).rows()}
    split = {"use": "split", "blocks": 1, "as": "split-1"}
    results = fuse(run, "classwise", "{use: features, merge: count, as: by-count}", split)
    found = {(row["recipe"], row["fusion"]): row for row in results.rows}
    assert {fusion for recipe, fusion in found if recipe == "fafi"} == {
        *("features", "classwise", "by-count", "split-1")
    }
    for key, accuracy in old.items():
        assert found[key]["accuracy"] == accuracy
    assert found["fafi", "split-1"]["personal_accuracy"] > 0
    assert found["fafi", "classwise"]["exchanges"] == 1
    assert {path: path.read_bytes() for path in run.glob("trials/*/uploads/*")} == before
    assert not list(run.glob("trials/*/merged"))
    # The study now asks for them: running it again has nothing to do.
    again = accord.run(run / "study.yaml", out=run, workers=1, quiet=True)
    assert again.rows == results.rows


def test_a_broken_upload_is_named_and_can_be_left_out(run: Path) -> None:
    trial = run / "trials" / fafi(run)
    path = trial / "uploads" / "client-1.safetensors"
    whole = path.read_bytes()
    path.write_bytes(whole[:1000])
    with pytest.raises(AccordError, match=r"client-1\.safetensors"):
        fuse(run, "classwise", trial="fafi")
    results = fuse(run, "classwise", trial="fafi", without=["1"])
    names = [row["fusion"] for row in results.rows if row["recipe"] == "fafi"]
    assert names == ["features", "classwise-without-1"]
    clients = Record(run).trial(fafi(run)).measures()["checkpoints"][-1]["clients"]
    assert len(clients) == 3  # what all clients did stays what it was


@pytest.mark.parametrize("harm", ["nan", "zero", "another client's", "another briefing's"])
def test_an_upload_that_cannot_be_used_is_refused_by_name(run: Path, harm: str) -> None:
    folder = run / "trials" / fafi(run) / "uploads"
    path = folder / "client-1.safetensors"
    upload = Upload.load(path)
    if harm == "nan":
        upload.tensors["net.head.prototypes"][0, 0] = torch.nan
    elif harm == "zero":
        for name, tensor in upload.tensors.items():
            if name.startswith("net."):
                tensor.zero_()
    elif harm == "another client's":
        upload = Upload.load(folder / "client-0.safetensors")
    else:
        header = upload.header.model_copy(update={"briefing": "0" * 64})
        upload = Upload(header, upload.tensors)
    upload.save(path)
    with pytest.raises(AccordError, match=r"client-1\.safetensors"):
        fuse(run, "outputs", trial="fafi")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"trial": "nobody"}, "no finished trial nobody"),
        ({"without": ["7"]}, "has no client '7'"),
        ({"without": ["0", "1", "2"]}, "leaves no client"),
        ({"save": "model"}, "choose it with --trial"),
    ],
)
def test_what_cannot_be_fused_is_said(made: Path, options: Raw, said: str) -> None:
    with pytest.raises(AccordError, match=said):
        fuse(made, "classwise", **options)


@pytest.mark.parametrize("name", ["features", "classwise", "standardised", "noise", "outputs"])
def test_a_saved_model_answers_as_the_server_did(run: Path, tmp_path: Path, name: str) -> None:
    fuse(run, name, trial="fafi", save=tmp_path / "model")
    model = Predictor.load(tmp_path / "model")
    trial = Record(run).trial(fafi(run))
    files = UploadFiles(sorted(trial.path.glob("uploads/*")), Briefing.load(trial.briefing))
    combiner = combiner_of(voting({"use": name}), files)
    votes = [combiner.vote(k, run_net(files, k, TEST, "cpu")) for k in range(3)]
    expected = combiner.decide(torch.stack(votes).sum(dim=0))
    torch.testing.assert_close(model.scores(TEST), expected, rtol=1e-5, atol=1e-5)
    # Alone, in a batch, in a stream sorted by class: the same.
    alone = torch.cat([model.scores(TEST.slice(i, i + 1)) for i in range(len(TEST))])
    torch.testing.assert_close(alone, expected, rtol=1e-5, atol=1e-5)
    order = np.argsort(-TEST.labels, kind="stable")
    turned = model.scores(ImageSet(TEST.images, TEST.rows[order], TEST.labels[order]))
    torch.testing.assert_close(turned, expected[order], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("spec", ["average", {"use": "distilled", "epochs": 1}])
def test_a_merged_model_is_one_net(run: Path, tmp_path: Path, spec: Any) -> None:
    fuse(run, spec, trial="fafi", save=tmp_path / "model")
    assert sorted(path.name for path in (tmp_path / "model").iterdir()) == [
        *("combiner.safetensors", "model.json", "net-0.safetensors")
    ]
    assert Predictor.load(tmp_path / "model").scores(TEST).shape == (40, 10)


def test_images_are_classified_by_name_and_exported(run: Path, tmp_path: Path) -> None:
    fuse(run, "classwise", trial="fafi", save=tmp_path / "model")
    folder = tmp_path / "images" / "inside"
    folder.mkdir(parents=True)
    for index in range(3):
        picture = Image.fromarray(digits()[0][index, ..., 0])
        picture.resize((20, 30)).convert("RGB").save(folder / f"{index}.png")
    (folder / "notes.txt").write_text("no image")
    words = ["predict", str(tmp_path / "model"), str(tmp_path / "images")]
    found = json.loads(CliRunner().invoke(app, [*words, "--json"]).stdout)
    assert [Path(one["file"]).name for one in found] == ["0.png", "1.png", "2.png"]
    for one in found:
        assert sum(one["confidences"].values()) == pytest.approx(1, abs=1e-5)
        assert one["class"] == max(one["confidences"], key=one["confidences"].__getitem__)
    assert "inside/2.png" in CliRunner().invoke(app, words).stdout
    assert export_onnx(Predictor.load(tmp_path / "model"), tmp_path / "m.onnx") < 1e-4
    assert (tmp_path / "m.onnx").stat().st_size > 100_000


def test_a_model_that_is_damaged_or_none_is_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(AccordError, match="no saved model"):
        Predictor.load(tmp_path)
    fuse(run, "features", trial="fafi", save=tmp_path / "model")
    net = tmp_path / "model" / "net-1.safetensors"
    whole = net.read_bytes()
    for content in (whole[:500], (tmp_path / "model" / "combiner.safetensors").read_bytes()):
        net.write_bytes(content)
        with pytest.raises(AccordError, match=r"net-1\.safetensors"):
            Predictor.load(tmp_path / "model")
    net.write_bytes(whole)
    model = Predictor.load(tmp_path / "model")
    with pytest.raises(AccordError, match="found nothing"):
        predict(model, [tmp_path / "nowhere.png"], print)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").write_text("keep me")
    with pytest.raises(AccordError, match="no part of a saved model"):
        model.save(tmp_path / "other")
    assert (tmp_path / "other" / "mine.txt").exists()
