"""A bank from an earlier trial: its clients, fused, encode the public images; no teacher trains."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import accord
from accord.core.errors import AccordError
from accord.data.views import normalise
from accord.federation.plan import Plan
from accord.messages import NET, Briefing, Features, Upload, unprefixed
from accord.nets.net import loaded_net
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.study.study import check_study
from records import contents, teachers, timeless
from tests_support import same

Raw = dict[str, Any]


@pytest.fixture(scope="module")
def earlier(tmp_path_factory: pytest.TempPathFactory) -> TrialFolder:
    """A finished trial of three clients with different numbers of images."""
    study = {
        "name": "earlier",
        "data": {"name": "digits", "train_limit": 150, "test_limit": 60},
        "partition": {"alpha": 0.5, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 1, "batch": 32},
        "recipes": ["fafi"],
        "references": False,
    }
    path = tmp_path_factory.mktemp("earlier") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    (trial,) = Record(path).trials()
    return trial


@pytest.fixture
def source(earlier: TrialFolder, tmp_path: Path) -> TrialFolder:
    """A copy to do harm to."""
    shutil.copytree(earlier.path, tmp_path / "source")
    return TrialFolder(tmp_path / "source")


def asks_for(path: Path | str, name: str = "given") -> Raw:
    return {"use": "public-negatives", "bank": {"source": str(path)}, "as": name}


@pytest.fixture
def study(study: Raw, earlier: TrialFolder) -> Raw:
    study["data"]["public"] = 0.2
    study["partition"]["clients"] = 2
    study["budget"]["epochs"] = 1
    study["recipes"] = [asks_for(earlier.path)]
    return study


def trial_id(study: Raw) -> str:
    """What the study's only trial would be called."""
    plan = Plan(accord.load_study(study), None, print)
    plan.check()
    (run,) = [run for run in plan.runs(Record(Path("unmade"))) if run.kind == "trial"]
    return run.folder.id


def test_several_clients_encode_public_images_together(
    study: Raw, earlier: TrialFolder, tmp_path: Path
) -> None:
    """norm(Σ_k (n_k/n) f_k(x)), each f_k un-augmented and in eval mode."""
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    plan = Plan(accord.load_study(study), None, print)
    public = plan.allocation(plan.study.trials()[0])[1].part("public")
    header = Briefing.load(earlier.briefing).header
    images = normalise(public.batch(torch.arange(30)), header.mean, header.std)
    uploads = [Upload.load(path) for path in sorted(earlier.path.glob("uploads/*"))]
    counts = [upload.header.samples for upload in uploads]
    assert len(set(counts)) > 1  # or equal weights would pass
    total = torch.zeros(30, 64)
    for upload, count in zip(uploads, counts, strict=True):
        net = loaded_net(header.net, 1, 10, unprefixed(NET, upload.tensors)).eval()
        with torch.no_grad():
            total += count / sum(counts) * net.encoder(images)
    (teacher,) = teachers(tmp_path)
    found = Features.load(teacher.path / "features.safetensors")
    expected = total / total.norm(dim=1, keepdim=True)
    torch.testing.assert_close(found.tensors["features"], expected)
    assert found.tensors["labels"].tolist() == public.labels.tolist()
    assert found.header.briefing == Briefing.load(earlier.briefing).digest
    (trial,) = Record(tmp_path).trials()
    bank = Briefing.load(trial.briefing).tensors
    assert torch.equal(bank["bank.features"], found.tensors["features"])  # all 30 fit
    assert trial.info()["teacher"] == teacher.id
    assert teacher.info()["source"] == str(earlier.path)
    assert not list(teacher.path.glob("uploads/*"))  # nobody trained


def test_a_teacher_of_an_earlier_study_serves_as_a_source(study: Raw, tmp_path: Path) -> None:
    """A teacher is a trial of one client: taken as a source it gives its own features."""
    study["recipes"] = [{"use": "public-negatives", "bank": {"teacher_epochs": 1}, "as": "taught"}]
    accord.run(study, out=tmp_path / "one", workers=1, quiet=True)
    (teacher,) = teachers(tmp_path / "one")
    study["recipes"] = [asks_for(teacher.path, "taught")]
    accord.run(study, out=tmp_path / "two", workers=1, quiet=True)
    (again,) = teachers(tmp_path / "two")
    features = [Features.load(t.path / "features.safetensors") for t in (teacher, again)]
    assert same(features[0].tensors, features[1].tensors)
    assert timeless(tmp_path / "one") == timeless(tmp_path / "two")


def test_a_trial_is_named_after_what_its_source_holds_not_where_it_lies(
    study: Raw, source: TrialFolder
) -> None:
    usual = trial_id(study)
    study["recipes"] = [asks_for(source.path)]
    assert trial_id(study) == usual
    path = source.path / "uploads" / "client-1.safetensors"
    upload = Upload.load(path)
    upload.tensors["net.encoder.stages.stage1.0.weight"][0] *= 1.001
    upload.save(path)
    assert trial_id(study) != usual


def test_a_source_that_changed_under_a_record_is_refused_before_anything_trains(
    study: Raw, source: TrialFolder, tmp_path: Path
) -> None:
    """Two trials would stand under the same recipe, skew and seed."""
    study["recipes"] = [asks_for(source.path)]
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    before = contents(tmp_path / "run")
    path = source.path / "uploads" / "client-1.safetensors"
    upload = Upload.load(path)
    upload.tensors["net.encoder.stages.stage1.0.weight"].mul_(-1.0)
    upload.save(path)
    with pytest.raises(AccordError):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert contents(tmp_path / "run") == before


def test_how_long_a_source_took_does_not_matter(study: Raw, source: TrialFolder) -> None:
    usual = trial_id(study)
    shutil.rmtree(source.path / "seconds")
    study["recipes"] = [asks_for(source.path)]
    assert trial_id(study) == usual


def test_a_source_may_move_between_two_runs_of_a_record(
    study: Raw, source: TrialFolder, tmp_path: Path
) -> None:
    study["recipes"] = [asks_for(source.path)]
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    shutil.move(source.path, tmp_path / "moved")
    study["recipes"] = [asks_for(tmp_path / "moved")]
    results = accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert len(results.rows) == 1


@pytest.mark.parametrize(
    ("part", "changes"),
    [("test", {"test_fraction": 0.5}), ("validation", {"validation": 0.2})],
)
def test_a_source_that_learnt_from_what_measures_here_is_refused(
    study: Raw, tmp_path: Path, part: str, changes: Raw
) -> None:
    """digits have no test part of their own: another fraction makes test of training images."""
    for limit in ("train_limit", "test_limit"):
        study["data"].pop(limit, None)
    study["data"] |= changes
    with pytest.raises(AccordError, match=rf"of the [\d,]+ {part} images"):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_teacher_as_a_source_has_learnt_from_its_public_images(
    study: Raw, tmp_path: Path
) -> None:
    study["recipes"] = [{"use": "public-negatives", "bank": {"teacher_epochs": 1}, "as": "taught"}]
    for limit in ("train_limit", "test_limit"):
        study["data"].pop(limit, None)
    accord.run(study, out=tmp_path / "one", workers=1, quiet=True)
    (teacher,) = teachers(tmp_path / "one")
    study["recipes"] = [asks_for(teacher.path)]
    study["data"]["test_fraction"] = 0.5
    with pytest.raises(AccordError, match="test images of this study"):
        accord.run(study, out=tmp_path / "two", workers=1, quiet=True)
    assert not (tmp_path / "two").exists()


# --- where it is -------------------------------------------------------------------------------


def test_a_relative_source_is_meant_from_the_file_that_names_it(
    study: Raw, source: TrialFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the study's folder in a study, from the recipe's own in a recipe file."""
    (tmp_path / "studies" / "mine").mkdir(parents=True)
    recipe = {"name": "in-a-file", "extends": "public-negatives"}
    text = yaml.safe_dump({**recipe, "bank": {"source": "../../source"}})
    (tmp_path / "studies" / "mine" / "recipe.yaml").write_text(text)
    study["recipes"] = [
        asks_for("../source", "in-the-study"),
        "mine/recipe.yaml",
        {"use": "mine/recipe.yaml", "bank": {"size": 12}, "as": "of-another-size"},
    ]
    path = tmp_path / "studies" / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    monkeypatch.chdir(tmp_path / "studies" / "mine")
    checked = accord.load_study(path)
    banks = [getattr(recipe, "bank", None) for recipe in checked.recipes]
    for bank in banks:
        assert bank is not None
        assert bank.source is not None
        assert Path(bank.source).is_absolute()
        assert Path(bank.source).resolve() == source.path.resolve()
    assert [bank.size for bank in banks if bank] == [None, None, 12]
    accord.run(checked, out=tmp_path / "run", workers=1, quiet=True)
    assert len(teachers(tmp_path / "run")) == 1
    # The record can be run again from wherever one stands.
    again = accord.run(tmp_path / "run" / "study.yaml", out=tmp_path / "run", workers=1, quiet=True)
    assert len(again.rows) == 3


# --- a source that cannot serve ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "said"),
    [
        (
            ["net.backbone=resnet10"],
            r"features of conv4 in .* have 64 numbers, expected 128, .*net.backbone resnet10",
        ),
        (
            ["data.image={size: 8, channels: 3}"],
            r"see images of 1 channels, expected 3, .*data.image.channels",
        ),
    ],
)
def test_features_that_do_not_fit_are_told_before_anything_is_written(
    study: Raw, tmp_path: Path, overrides: list[str], said: str
) -> None:
    with pytest.raises(AccordError, match=f"recipe 'given': bank.source: .*{said}"):
        accord.run(study, overrides=overrides, out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("harm", ["no folder", "a file", "a run", "no uploads", "no briefing"])
def test_a_folder_that_is_no_trial_is_told_before_anything_is_written(
    study: Raw, source: TrialFolder, tmp_path: Path, harm: str
) -> None:
    path = source.path
    if harm == "no folder":
        path = tmp_path / "nothing"
    elif harm == "a file":
        path = source.path / "trial.json"
    elif harm == "a run":
        path = tmp_path / "a" / "run"
        shutil.copytree(source.path, path / "trials" / "fafi")
    elif harm == "no uploads":
        shutil.rmtree(source.path / "uploads")
    else:
        source.briefing.unlink()
    study["recipes"] = ["fafi", asks_for(path)]
    with pytest.raises(AccordError, match=r"recipe 'given': bank.source: .*a finished trial") as e:
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert str(path) in str(e.value)
    assert not (tmp_path / "run").exists()


def test_a_damaged_briefing_is_named_before_anything_is_written(
    study: Raw, source: TrialFolder, tmp_path: Path
) -> None:
    source.briefing.write_bytes(source.briefing.read_bytes()[:-9])
    study["recipes"] = [asks_for(source.path)]
    with pytest.raises(AccordError, match=r"source/briefing\.safetensors is not a whole briefing"):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("harm", ["cut", "NaN", "another briefing"])
def test_an_upload_that_cannot_be_used_is_named_and_nobody_trains(
    study: Raw, source: TrialFolder, tmp_path: Path, harm: str
) -> None:
    path = source.path / "uploads" / "client-2.safetensors"
    upload, said = Upload.load(path), "is not a whole upload"
    if harm == "cut":
        path.write_bytes(path.read_bytes()[:-100])
    elif harm == "NaN":
        upload.tensors["net.encoder.stages.stage1.0.weight"][0] = torch.nan
        upload.save(path)
        said = "holds NaN or infinity"
    else:
        header = upload.header.model_copy(update={"briefing": "0" * 64})
        Upload(header, upload.tensors).save(path)
        said = "answers another briefing"
    study["recipes"] = [asks_for(source.path)]
    with pytest.raises(AccordError, match=rf"client-2\.safetensors.*{said}"):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert not list((tmp_path / "run").glob("**/uploads/*"))
    assert not list((tmp_path / "run").glob("**/features.safetensors"))


def test_a_trial_that_lacks_a_client_is_no_source(
    study: Raw, source: TrialFolder, tmp_path: Path
) -> None:
    """Its fused features would be those of the clients that happened to be done."""
    (source.path / "uploads" / "client-2.safetensors").unlink()
    source.write_info({**source.info(), "status": "running"})
    study["recipes"] = [asks_for(source.path)]
    with pytest.raises(AccordError, match="finished trial"):
        accord.run(study, out=tmp_path / "run", workers=1, quiet=True)


# --- together with everything else -------------------------------------------------------------


def test_a_recipe_of_ones_own_combines_bank_contrast_mmd_anchors_and_two_balances(
    study: Raw, tmp_path: Path
) -> None:
    recipe = {
        "name": "mine",
        "extends": "etf-stabilised",
        "objective": {"contrast": {"bank": "others"}},
        "align": {"mmd": {"balance": {"use": "fixed", "lambda": 1}}},
        "bank": {"teacher_epochs": 1, "size": 20},
    }
    (tmp_path / "mine.yaml").write_text(yaml.safe_dump(recipe))
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump({**study, "recipes": ["mine.yaml"]}))
    results = accord.run(path, out=tmp_path / "run", workers=1, quiet=True)
    assert not results.failures
    assert [row["recipe"] for row in results.rows] == ["mine"]
    (trial,) = Record(tmp_path / "run").trials()
    resolved = trial.info()["config"]["recipe"]
    rules = {name: spec["balance"]["use"] for name, spec in resolved["align"].items()}
    assert rules == {"anchors": "stabilised", "mmd": "fixed"}
    briefing = Briefing.load(trial.briefing).tensors
    assert briefing["anchors"].shape == (10, 64)
    assert briefing["bank.features"].shape == (20, 64)
    for event in results.events():
        assert event["loss_align"] == pytest.approx(event["loss_anchors"] + event["loss_mmd"])
        assert event["loss_contrast"] > 0
        assert event["mmd_lambda_raw"] == 1
        assert event["anchors_sigma_sq_align"] > 0
        for name in ("anchors", "mmd"):
            assert event[f"{name}_gradient_norm_align"] > 0
            assert event[f"{name}_gradient_norm_local"] > 0
    uploads = [Upload.load(p) for p in sorted(trial.path.glob("uploads/*"))]
    assert all(bool(t.isfinite().all()) for upload in uploads for t in upload.tensors.values())


def test_a_source_that_has_seen_what_clients_hold_out_is_refused(
    study: Raw, earlier: TrialFolder
) -> None:
    """Its clients were drawn by the same seed, but they held nothing out."""
    study["data"] = {"name": "digits", "train_limit": 150, "test_limit": 60}
    study["data"] |= {"public": 0.2, "test_per_client": 0.2}
    study["recipes"] = [asks_for(earlier.path)]
    plan = Plan(check_study(study, Path()), None, lambda _: None)
    with pytest.raises(AccordError, match=r"have trained on [\d,]+ of the [\d,]+ held-out images"):
        plan.check()
