"""The closed form as a user meets it: real runs on digits, from the study to the saved model."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import accord
from accord.cli import app
from accord.client.base import answer
from accord.client.summing import Summing
from accord.closed_form.sums import Sums
from accord.core.errors import AccordError
from accord.data.imageset import ImageSet
from accord.messages import MAP, Briefing, Upload, unprefixed
from accord.model.export import export_onnx
from accord.model.predictor import Predictor
from accord.record.record import Record
from closed_run import RECIPE, SMALL, TEST, Raw, accuracy, run, scores, study, uploads
from tests_support import images_of


def test_it_learns_from_sums_alone(made: Path) -> None:
    assert accuracy(made) > 0.9
    (trial,) = Record(made).trials()
    assert trial.info()["status"] == "finished"
    held = Upload.load(uploads(made)[0]).tensors
    assert set(held) == {"label_counts", "feature_sums", "scatter"}  # no net, no image


def test_any_partition_gives_the_same_answer(record: Path, tmp_path: Path) -> None:
    first = scores(record, tmp_path)
    partitions: list[Raw] = [
        {"scheme": "iid", "clients": 1},
        {"scheme": "iid", "clients": 7},
        {"alpha": 0.05, "clients": 5},
    ]
    for number, partition in enumerate(partitions):
        folder = tmp_path / str(number)
        other = scores(run(folder / "run", partition=partition), folder)
        # In units of the scores, which are up to some ten.
        torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-3)
        assert torch.equal(other.argmax(dim=1), first.argmax(dim=1)), partition


def test_nets_and_sums_are_not_mixed_up(tmp_path: Path) -> None:
    out = run(tmp_path / "run", recipes=[RECIPE, "fafi"], fusions=["classwise", "ridge"])
    found = {(row["recipe"], row["fusion"]) for row in Record(out).rows()}
    assert found == {("closed", "ridge"), ("fafi", "features"), ("fafi", "classwise")}
    with pytest.raises(AccordError, match="'classwise' does not fit closed"):
        accord.fuse(out, ["classwise"], trial="closed", workers=1, quiet=True)
    with pytest.raises(AccordError, match="--add and --remove need uploads that are sums"):
        accord.fuse(out, ["classwise"], trial="fafi", remove=["1"], workers=1, quiet=True)
    with pytest.raises(AccordError, match=r"fusion: 'classwise' fuses nets"):
        accord.run(study(recipes=[{**RECIPE, "fusion": "classwise"}]), out=tmp_path / "no")
    changed = {**RECIPE, "objective": {"cross-entropy": {}}}
    with pytest.raises(AccordError, match="because it has a `map`, and 'objective'"):
        accord.run(study(recipes=[changed]), out=tmp_path / "no")


@pytest.mark.parametrize(
    "labels", [[3], [3, 3, 3], [0, 1]], ids=["one image", "one class", "two images"]
)
def test_small_clients_sum_too(made: Path, labels: list[int]) -> None:
    (trial,) = Record(made).trials()
    briefing = Briefing.load(trial.briefing)
    client = Summing(images_of(labels), briefing, "0")
    upload = answer(client)
    upload.check(briefing, "here")
    assert Sums.of(upload.tensors).total == len(labels)


def test_constant_images_sum_to_no_scatter(made: Path) -> None:
    (trial,) = Record(made).trials()
    briefing = Briefing.load(trial.briefing)
    grey = ImageSet(np.full((5, 8, 8, 1), 128, np.uint8), np.arange(5), np.arange(5))
    client = Summing(grey, briefing, "0")
    upload = answer(client)
    upload.check(briefing, "here")
    assert Sums.of(upload.tensors).scatter.abs().max() < 1e-6


def test_the_model_predicts_and_is_exported(record: Path, tmp_path: Path) -> None:
    said = scores(record, tmp_path)
    model = Predictor.load(tmp_path / "model")
    assert export_onnx(model, tmp_path / "model.onnx") < 1e-4
    for position in (0, 17):
        alone = model.scores(TEST.slice(position, position + 1))
        torch.testing.assert_close(alone[0], said[position], rtol=1e-5, atol=1e-4)


def test_public_images_and_a_teacher(tmp_path: Path) -> None:
    taught = {"use": "teacher", "stages": 1, "grid": 1, "teachers": 2}
    blocks = [{**SMALL, "source": "public"}, taught]
    fixed = {"blocks": blocks, "landmarks": 40, "teacher_epochs": 2}
    recipes = [
        {"use": "closed-form-teacher", "map": fixed, "as": "closed"},
        {"use": "public-teacher", "budget": {"epochs": 2}, "copies": 2, "as": "alone"},
    ]
    out = run(tmp_path / "run", recipes=recipes)
    found = {row["recipe"]: row for row in Record(out).rows()}
    assert found["closed"]["accuracy"] > 0.7
    assert found["alone"]["epoch"] == 2
    (alone,) = [trial for trial in Record(out).trials() if trial.id.startswith("alone")]
    assert np.sum(alone.info()["label_counts"], axis=1).tolist() == [60, 60]  # no client's
    one, two = (Upload.load(path).tensors for path in sorted(alone.path.glob("uploads/*")))
    assert not torch.equal(one["net.head.prototypes"], two["net.head.prototypes"])
    (trial,) = [trial for trial in Record(out).trials() if trial.id.startswith("closed")]
    briefing = Briefing.load(trial.briefing)
    teachers = sorted((out / "teachers").glob("teacher-2-*/uploads/*"), key=lambda path: path.stem)
    assert [path.stem for path in teachers] == ["client-teacher", "client-teacher-1"]
    seen = []
    for number, path in enumerate(teachers):
        weights = unprefixed(MAP, Upload.load(path).tensors)
        for name, tensor in weights.items():
            told = briefing.tensors[f"{MAP}blocks.1.encoders.{number}.{name}"]
            assert torch.equal(told, tensor), name
        seen.append(torch.cat([weights[name].flatten() for name in sorted(weights)]))
    assert not torch.equal(*seen)  # other batches


def test_copies_are_for_pooled_recipes(tmp_path: Path) -> None:
    with pytest.raises(AccordError, match=r"copies: only a pooled recipe"):
        accord.run(study(recipes=[{"use": "ce-ensemble", "copies": 2}]), out=tmp_path / "run")


def test_tiny_images_get_smaller_patches_and_each_block_its_own(tmp_path: Path) -> None:
    out = run(tmp_path / "run", recipes=["closed-form-small"])
    (trial,) = Record(out).trials()
    tensors = Briefing.load(trial.briefing).tensors
    one, two = (tensors[f"{MAP}blocks.{index}.dictionary"] for index in (0, 1))
    assert one.shape == two.shape == (50, 25)  # 5×5 on images of 8×8, though 9×9 was asked for
    assert not torch.equal(one, two)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"landmarks": 61}, "at most the 60 public images"),
        ({"blocks": [{"use": "patchs"}]}, "patchs.*patches"),
        ({"blocks": [{"use": "teacher", "stages": 9}]}, "stages"),
    ],
)
def test_maps_that_cannot_be_looked_through_are_refused_before_anything_is_written(
    tmp_path: Path, change: Raw, said: str
) -> None:
    with pytest.raises(AccordError, match=said):
        accord.run(study(recipes=[{**RECIPE, "map": change}]), out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_map_that_needs_public_images_says_so(tmp_path: Path) -> None:
    data = {"name": "digits", "train_limit": 300}
    with pytest.raises(AccordError, match=r"needs public images.*data\.public"):
        accord.run(study(data=data, recipes=["closed-form-public"]), out=tmp_path / "run")


def test_a_dry_run_tells_what_it_costs_and_the_cli_removes(record: Path, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(json.dumps(study()))
    runner = CliRunner()
    shown = runner.invoke(app, ["run", str(tmp_path / "study.yaml"), "--dry-run", "--workers", "1"])
    assert shown.exit_code == 0, shown.output
    assert "closed-a0.1" in shown.output
    words = ["fuse", str(record), "--fusion", "ridge", "--remove", "1", "--quiet", "--workers", "1"]
    removed = runner.invoke(app, words)
    assert removed.exit_code == 0, removed.output
    assert "ridge-without-1" in removed.output


def test_classes_are_as_likely_as_any_other_or_as_in_the_data(record: Path) -> None:
    accord.fuse(record, ["{use: ridge, prior: data, as: data}"], workers=1, quiet=True)
    assert accuracy(record, "data") > 0.85
    with pytest.raises(AccordError, match=r"prior.*'uniform' or 'data'"):
        accord.fuse(record, ["{use: ridge, prior: some}"], quiet=True)


# --- keys that mean nothing here ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("recipe", "key"),
    [
        ({**RECIPE, "head": "prototypes"}, "head"),
        ({**RECIPE, "views": 2}, "views"),
        ({**RECIPE, "budget": {"lr": 0.1}}, "budget"),
        ({**RECIPE, "pooled": True, "copies": 2}, "copies"),
        ({"use": "ce-ensemble", "packing": "int8"}, "packing"),
    ],
)
def test_keys_without_a_meaning_are_refused(tmp_path: Path, recipe: Raw, key: str) -> None:
    with pytest.raises(AccordError, match=rf"'{key}' is a key of recipes that .* Drop one"):
        accord.run(study(recipes=[recipe]), out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_paths_in_recipes_are_meant_from_where_they_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    trained = run(tmp_path / "trained", recipes=["ce-ensemble"])
    accord.fuse(trained, ["average"], workers=1, quiet=True, save=tmp_path / "model")
    blocks = [{"use": "encoder", "model": "model", "stages": 1, "grid": 1}]
    fusion = {"use": "distilled", "teacher": "ridge", "images": "pictures", "epochs": 1}
    raw = study(recipes=[{**RECIPE, "map": {"blocks": blocks}, "fusion": ["ridge", fusion]}])
    (tmp_path / "study.yaml").write_text(json.dumps(raw))
    (tmp_path / "pictures").mkdir()
    for index in range(4):
        pixels = np.full((8, 8), 60 * index, np.uint8)
        Image.fromarray(pixels).save(tmp_path / "pictures" / f"{index}.png")
    monkeypatch.chdir(tmp_path / "elsewhere")
    results = accord.run(tmp_path / "study.yaml", out=tmp_path / "out", workers=1, quiet=True)
    assert not results.failures
    assert {row["fusion"] for row in results.rows} == {"ridge", "distilled"}
