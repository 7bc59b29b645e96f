"""The closed form as a user meets it: real runs on digits, from the study to the saved model."""

from __future__ import annotations

import json
import os
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
from accord.data.imageset import ImageSet
from accord.errors import AccordError
from accord.export import export_onnx
from accord.messages import MAP, Briefing, Upload, unprefixed
from accord.predictor import Predictor
from accord.record import Record
from accord.summing import Summing
from accord.sums import Sums
from accord.totals import Total
from tests_support import images_of

Raw = dict[str, Any]
SMALL = {"use": "patches", "size": 3, "count": 20, "grid": 2}
RECIPE = {"use": "closed-form", "map": {"blocks": [SMALL]}, "as": "closed"}
TEST = images_of([label for label in range(10) for _ in range(5)])


def study(**changes: Any) -> Raw:
    return {
        "name": "closed",
        "data": {"name": "digits", "train_limit": 300, "public": 0.2},
        "partition": {"alpha": 0.1, "clients": 4},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 3, "batch": 32},
        "recipes": [RECIPE],
        "bounds": False,
        **changes,
    }


def run(out: Path, **changes: Any) -> Path:
    results = accord.run(study(**changes), out=out, workers=1, quiet=True)
    assert not results.failures
    return out


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("closed") / "run")


@pytest.fixture
def record(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def scores(record: Path, tmp_path: Path, **options: Any) -> torch.Tensor:
    """What the saved ridge says of some test images."""
    folder = tmp_path / "model"
    accord.fuse(record, ["ridge"], trial="closed", workers=1, quiet=True, save=folder, **options)
    return Predictor.load(folder).scores(TEST)


def accuracy(record: Path, fusion: str = "ridge") -> float:
    (row,) = [row for row in Record(record).rows() if row["fusion"] == fusion]
    return float(row["accuracy"])


def uploads(record: Path) -> list[Path]:
    return sorted(record.glob("trials/closed*/uploads/*"))


def test_it_learns_from_sums_alone(made: Path) -> None:
    assert accuracy(made) > 0.9
    (trial,) = Record(made).trials()
    assert trial.info()["status"] == "finished"
    held = Upload.load(uploads(made)[0]).tensors
    assert set(held) == {"label_counts", "feature_sums", "scatter"}  # no net, no image


@pytest.mark.parametrize(
    "partition",
    [
        {"scheme": "iid", "clients": 1},
        {"scheme": "iid", "clients": 7},
        {"alpha": 0.05, "clients": 5},
    ],
)
def test_any_partition_gives_the_same_answer(made: Path, tmp_path: Path, partition: Raw) -> None:
    shutil.copytree(made, tmp_path / "first")
    first = scores(tmp_path / "first", tmp_path / "a")
    other = scores(run(tmp_path / "other", partition=partition), tmp_path / "b")
    # In units of the scores, which are up to some ten.
    torch.testing.assert_close(other, first, rtol=1e-4, atol=1e-3)
    assert torch.equal(other.argmax(dim=1), first.argmax(dim=1))


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


@pytest.mark.parametrize(
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
    with pytest.raises(AccordError, match="with a `map` nothing trains"):
        accord.run(study(recipes=[changed]), out=tmp_path / "no")


@pytest.mark.parametrize(
    "labels", [[3], [3, 3, 3], [0, 1]], ids=["one image", "one class", "two images"]
)
def test_small_clients_sum_too(made: Path, labels: list[int]) -> None:
    (trial,) = Record(made).trials()
    briefing = Briefing.load(trial.briefing)
    client = Summing(images_of(labels), briefing, "0", torch.device("cpu"))
    upload = client.upload(client.run())
    upload.check(briefing, "here")
    assert Sums.of(upload.tensors).total == len(labels)


def test_constant_images_sum_to_no_scatter(made: Path) -> None:
    (trial,) = Record(made).trials()
    briefing = Briefing.load(trial.briefing)
    grey = ImageSet(np.full((5, 8, 8, 1), 128, np.uint8), np.arange(5), np.arange(5))
    client = Summing(grey, briefing, "0", torch.device("cpu"))
    upload = client.upload(client.run())
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
        seen.append(next(iter(weights.values())))
    assert not torch.equal(*seen)  # other batches


def test_copies_are_for_pooled_recipes(tmp_path: Path) -> None:
    with pytest.raises(AccordError, match=r"copies: only where images are pooled"):
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
    shown = runner.invoke(app, ["run", str(tmp_path / "study.yaml"), "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "closed-a0.1" in shown.output
    words = ["fuse", str(record), "--fusion", "ridge", "--remove", "1", "--quiet"]
    removed = runner.invoke(app, words)
    assert removed.exit_code == 0, removed.output
    assert "ridge-without-1" in removed.output


# --- a student of the closed form ---------------------------------------------------------------

STUDENT = "{use: distilled, teacher: ridge, epochs: 60, batch: 16}"


def test_a_small_net_learns_what_the_closed_form_says(record: Path, tmp_path: Path) -> None:
    accord.fuse(record, [STUDENT], workers=1, quiet=True, save=tmp_path / "student")
    # 60 public images without labels, a net that nobody trained before.
    assert accuracy(record, "distilled") > 0.6
    model = Predictor.load(tmp_path / "student")
    assert model.header.net.map is None
    assert model.header.net.backbone == "conv4"
    assert export_onnx(model, tmp_path / "student.onnx") < 1e-4
    said = model.scores(TEST)
    accord.fuse(record, [STUDENT], workers=1, quiet=True, save=tmp_path / "again")
    assert torch.equal(Predictor.load(tmp_path / "again").scores(TEST), said)


def test_a_student_of_those_who_stayed(record: Path, tmp_path: Path) -> None:
    accord.fuse(record, [STUDENT], remove=["2"], workers=1, quiet=True, save=tmp_path / "student")
    origin = json.loads((tmp_path / "student" / "model.json").read_text())["origin"]
    assert origin["clients"] == ["0", "1", "3"]
    assert accuracy(record, "distilled-without-2") < accuracy(record)


@pytest.mark.parametrize(
    ("change", "said"),
    [("start: average", "`start: average` cannot be"), ("features: 1.0", "`features` cannot be")],
)
def test_a_student_of_sums_has_no_clients_nets_to_begin_with(
    record: Path, change: str, said: str
) -> None:
    with pytest.raises(AccordError, match=said):
        accord.fuse(record, [f"{{use: distilled, teacher: ridge, {change}}}"], quiet=True)


def test_a_teacher_must_fit_what_clients_upload(record: Path) -> None:
    with pytest.raises(AccordError, match=r"'distilled' does not fit closed.*it fuses nets"):
        accord.fuse(record, ["{use: distilled, teacher: classwise}"], quiet=True)


def test_classes_are_as_likely_as_any_other_or_as_in_the_data(record: Path) -> None:
    accord.fuse(record, ["{use: ridge, prior: data, as: data}"], workers=1, quiet=True)
    assert accuracy(record, "data") > 0.85
    with pytest.raises(AccordError, match=r"prior.*'uniform' or 'data'"):
        accord.fuse(record, ["{use: ridge, prior: some}"], quiet=True)


# --- who comes and who goes, once and by the right name -----------------------------------------


def late(record: Path, path: Path, client: str, labels: list[int]) -> Path:
    """The upload of one who comes later."""
    (trial,) = Record(record).trials()
    summing = Summing(images_of(labels), Briefing.load(trial.briefing), client, torch.device("cpu"))
    summing.upload(summing.run()).save(path)
    return path


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
    with pytest.raises(AccordError, match=r"client late is one of .* already, or was named"):
        accord.fuse(record, ["ridge"], add=[file, file], workers=1, quiet=True)
    nameless = late(record, tmp_path / "nameless.safetensors", "", [0, 1, 2])
    with pytest.raises(AccordError, match="does not say whose it is"):
        accord.fuse(record, ["ridge"], add=[nameless], workers=1, quiet=True)


def test_another_upload_of_the_same_name_is_not_taken_for_the_first(
    record: Path, tmp_path: Path
) -> None:
    file = late(record, tmp_path / "late.safetensors", "late", [0, 1, 2])
    accord.fuse(record, ["ridge"], add=[file], workers=1, quiet=True)
    accord.fuse(record, ["ridge"], add=[file], workers=1, quiet=True)
    late(record, file, "late", [3, 4, 5, 6])
    with pytest.raises(
        AccordError, match="has a row 'ridge-with-late' already, with another clien"
    ):
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
    with pytest.raises(AccordError, match=rf"{key}: it means something only where .* Drop it"):
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
