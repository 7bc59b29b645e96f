"""The server's teacher: trained once per seed on public images, and what trials get of it."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

import accord
from accord.client.training import Training
from accord.core.processor import processor
from accord.data.allocation import Allocation
from accord.data.views import normalise
from accord.federation.bank_source import uploads_of
from accord.federation.plan import Plan
from accord.federation.teacher import encode
from accord.federation.work import Run
from accord.messages import NET, Briefing, Features, TrainingSpec, Upload, unprefixed
from accord.nets.net import loaded_net
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.record.rows import rows_of
from records import (
    assert_same_teachers,
    assert_same_uploads,
    contents,
    modified,
    teachers,
    timeless,
)
from tests_support import same, train, without_seconds

Raw = dict[str, Any]


def changed(use: str, name: str, bank: Raw | None = None, **more: Any) -> Raw:
    """A recipe whose teacher trains for two epochs."""
    return {"use": use, "bank": {"teacher_epochs": 2, **(bank or {})}, **more, "as": name}


@pytest.fixture
def study(study: Raw) -> Raw:
    """150 images, 30 of them public; one recipe with a bank."""
    study["data"]["public"] = 0.2
    study["partition"]["clients"] = 2
    study["budget"] = {"epochs": 1, "batch": 32}
    study["recipes"] = [changed("public-negatives", "repelled")]
    return study


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Raw]:
    """One run of several recipes, skews and seeds, for the tests that only read."""
    study = {
        "name": "taught",
        "data": {"name": "digits", "train_limit": 150, "test_limit": 60, "public": 0.2},
        "partition": {"alpha": [0.5, 5.0], "clients": 2},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 1, "batch": 64},
        "recipes": [
            changed("public-negatives", "repelled"),
            changed("reference-mmd", "drawn", {"size": 13}),
            "fafi",
        ],
        "seeds": [0, 1],
        "references": False,
    }
    path = tmp_path_factory.mktemp("made") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    return path, study


@pytest.fixture(scope="module")
def whole(made: tuple[Path, Raw], tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Raw]:
    """The smallest run with a teacher, and a trial that needs none."""
    _, large = made
    study = {**large, "partition": {"alpha": 0.5, "clients": 2}, "seeds": [0]}
    study["recipes"] = [changed("public-negatives", "repelled"), "fafi"]
    path = tmp_path_factory.mktemp("whole") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    return path, study


def allocations(study: Raw) -> dict[int, Allocation]:
    """An allocation of each seed: all of one seed share their public images."""
    plan = Plan(accord.load_study(study), None, print)
    return {trial.seed: plan.allocation(trial)[1] for trial in plan.study.trials()}


def features_of(folder: TrialFolder) -> Features:
    return Features.load(folder.path / "features.safetensors")


def planned(study: Raw, record: Path, *overrides: str) -> list[Run]:
    return Plan(accord.load_study(study, overrides), None, print).runs(Record(record))


def teacher_ids(runs: Sequence[Run]) -> list[str]:
    return [run.folder.id for run in runs if run.kind == "teacher"]


# --- who trains ----------------------------------------------------------------------------------


def test_one_teacher_per_seed_for_all_recipes_and_skews(made: tuple[Path, Raw]) -> None:
    path, study = made
    assert [folder.info()["seed"] for folder in teachers(path)] == [0, 1]
    by_seed = {folder.info()["seed"]: folder.id for folder in teachers(path)}
    trials = Record(path).trials()
    assert len(trials) == 3 * 2 * 2
    for trial in trials:
        info = trial.info()
        expected = None if info["recipe"] == "fafi" else by_seed[info["seed"]]
        assert info["teacher"] == expected
    alone = planned({**study, "recipes": ["fafi"]}, path)
    assert teacher_ids(alone) == []


def test_another_net_head_budget_or_public_set_is_another_teacher(
    study: Raw, tmp_path: Path
) -> None:
    """And nothing else: recipes, skew and the size of the bank share one."""
    (usual,) = teacher_ids(planned(study, tmp_path))
    recipes = [
        changed("bank-two-stage", "staged"),
        changed("reference-coral", "drawn"),
        changed("public-negatives", "few", {"size": 10, "selection": "random"}),
    ]
    alike = ("partition.alpha=[5.0,0.5]", "budget.epochs=3", "budget.checkpoints=[1,2]")
    assert teacher_ids(planned({**study, "recipes": recipes}, tmp_path, *alike)) == [usual]
    other = [
        "recipes=[{use: public-negatives, bank: {teacher_epochs: 3}, as: longer}]",
        "recipes=[{use: public-negatives, bank: {teacher_epochs: 2}, head: linear, as: linear}]",
        "net.norm=group",
        "net.backbone=resnet10",
        "data.public=0.3",
        "data.augment=none",
        "budget.lr=0.1",
        "seeds=[1]",
    ]
    found = [teacher_ids(planned(study, tmp_path, override)) for override in other]
    assert all(len(ids) == 1 for ids in found)
    assert len({usual, *(ids[0] for ids in found)}) == len(other) + 1
    assert not list(tmp_path.iterdir())  # a plan writes nothing


def test_the_teacher_is_a_client_who_holds_the_public_images(made: tuple[Path, Raw]) -> None:
    """Bit for bit what `train` gives: cross-entropy, the clients' net, start and budget."""
    path, study = made
    for folder in teachers(path):
        briefing = Briefing.load(folder.briefing)
        assert isinstance(briefing.header.training, TrainingSpec)
        assert list(briefing.header.training.objective) == ["cross-entropy"]
        assert briefing.header.budget.model_dump(mode="json") == {
            **accord.load_study(study).setups[0].budget.model_dump(mode="json"),
            "epochs": 2,
            "checkpoints": [2],
        }
        trial = next(t for t in Record(path).trials() if t.info()["teacher"] == folder.id)
        clients = Briefing.load(trial.briefing)
        assert briefing.header.net == clients.header.net
        assert same(unprefixed(NET, briefing.tensors), unprefixed(NET, clients.tensors))
        public = allocations(study)[folder.info()["seed"]].part("public")
        assert len(public) == folder.info()["public_images"] == 30
        expected = train(public, briefing, "teacher")
        found = Upload.load(folder.path / "uploads" / "client-teacher.safetensors")
        assert same(found.tensors, expected.tensors)
        assert without_seconds(found.header.telemetry) == without_seconds(expected.header.telemetry)


def test_a_teacher_leaves_its_telemetry_and_says_what_it_is(made: tuple[Path, Raw]) -> None:
    for folder in teachers(made[0]):
        events = [json.loads(line) for line in folder.events.read_text().splitlines()]
        assert [(event["client"], event["epoch"]) for event in events] == [
            ("teacher", 1),
            ("teacher", 2),
        ]
        assert all(event["loss"] > 0 for event in events)
        info = folder.info()
        assert (info["id"], info["status"], info["failures"]) == (folder.id, "finished", [])
        assert info["source"] is None
        assert info["config"]["budget"]["epochs"] == 2
        assert torch.__version__.startswith(info["versions"]["torch"])  # maybe with +cu130
        assert info["processor"] == processor()
        assert not list(folder.path.glob("state/*"))


# --- what it makes -------------------------------------------------------------------------------


def test_features_are_the_public_images_through_the_teacher(made: tuple[Path, Raw]) -> None:
    """f = encoder(x) un-augmented and in eval mode, to unit length, every public image in order."""
    path, study = made
    for folder in teachers(path):
        public = allocations(study)[folder.info()["seed"]].part("public")
        found = features_of(folder)
        header = Briefing.load(folder.briefing).header
        weights = Upload.load(folder.path / "uploads" / "client-teacher.safetensors").tensors
        net = loaded_net(header.net, 1, 10, unprefixed(NET, weights)).eval()
        images = public.batch(torch.arange(len(public)))
        with torch.no_grad():
            f = net.encoder(normalise(images, header.mean, header.std))
        torch.testing.assert_close(found.tensors["features"], f / f.norm(dim=1, keepdim=True))
        torch.testing.assert_close(found.tensors["features"].norm(dim=1), torch.ones(30))
        assert found.tensors["labels"].tolist() == public.labels.tolist()
        again = encode(uploads_of(folder), public, "cpu")
        assert same(found.tensors, {"features": again.features, "labels": again.labels})
        assert found.header.briefing == Briefing.load(folder.briefing).digest


def test_the_bank_in_a_briefing_is_a_selection_of_the_features(made: tuple[Path, Raw]) -> None:
    for trial in Record(made[0]).trials():
        info, tensors = trial.info(), Briefing.load(trial.briefing).tensors
        if info["recipe"] == "fafi":
            assert not [name for name in tensors if name.startswith("bank.")]
            continue
        bank, labels = tensors["bank.features"], tensors["bank.labels"]
        everything = features_of(Record(made[0]).teacher(info["teacher"])).tensors
        assert len(bank) == len(labels) == (13 if info["recipe"] == "drawn" else 30)
        torch.testing.assert_close(bank.norm(dim=1), torch.ones(len(bank)))
        where = (bank[:, None] == everything["features"][None]).all(dim=2)
        assert where.sum(dim=1).tolist() == [1] * len(bank)  # each is one of them
        rows = where.int().argmax(dim=1)
        assert len(set(rows.tolist())) == len(bank)
        assert torch.equal(everything["labels"][rows], labels)
        if info["recipe"] == "drawn":
            assert set(torch.bincount(labels, minlength=10).tolist()) == {1, 2}


def test_downloads_count_the_bank(made: tuple[Path, Raw]) -> None:
    sizes: dict[str, set[int]] = {}
    for trial in Record(made[0]).trials():
        info = trial.info()
        rows = list(rows_of(trial, []))
        expected = 2 * trial.briefing.stat().st_size
        assert info["rounds"][0]["download_bytes"] == expected
        assert [row["download_bytes"] for row in rows] == [expected]
        sizes.setdefault(info["recipe"], set()).add(expected)
    row = 4 * 64 + 8  # a feature and its label
    for name, count in (("repelled", 30), ("drawn", 13)):
        assert min(sizes[name]) >= max(sizes["fafi"]) + 2 * count * row


# --- how it is made does not matter --------------------------------------------------------------


def test_one_worker_or_two_give_the_same_bits(whole: tuple[Path, Raw], tmp_path: Path) -> None:
    path, study = whole
    accord.run(study, out=tmp_path, workers=2, quiet=True)
    assert timeless(tmp_path) == timeless(path)
    assert_same_uploads(tmp_path, path)
    assert_same_teachers(tmp_path, path)


def test_a_finished_study_run_again_changes_no_byte(made: tuple[Path, Raw]) -> None:
    path, study = made
    before, times = contents(path), modified(path)
    accord.run(study, out=path, workers=1, quiet=True)
    assert contents(path) == before
    assert modified(path) == times


def test_a_finished_study_needs_its_teachers_no_more(
    made: tuple[Path, Raw], tmp_path: Path
) -> None:
    path, study = made
    shutil.copytree(path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "teachers")
    before = contents(tmp_path / "run")
    accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    assert contents(tmp_path / "run") == before


@pytest.mark.parametrize("lost", [("features",), ("features", "upload"), ("features", "folder")])
def test_what_a_teacher_lost_is_made_again_and_nothing_else(
    made: tuple[Path, Raw], tmp_path: Path, lost: tuple[str, ...]
) -> None:
    """As if killed between its stages, when one trial of that seed had yet to train."""
    path, study = made
    run = tmp_path / "run"
    shutil.copytree(path, run)
    teacher = next(folder for folder in teachers(run) if folder.info()["seed"] == 0)
    trial = next(t for t in Record(run).trials() if t.id.startswith("drawn-a5-s0"))
    shutil.rmtree(trial.path)
    (teacher.path / "features.safetensors").unlink()
    upload = teacher.path / "uploads" / "client-teacher.safetensors"
    trained = upload.stat().st_mtime_ns
    if "upload" in lost:
        upload.unlink()
    if "folder" in lost:
        shutil.rmtree(teacher.path)
    before = modified(run)
    accord.run(study, out=run, workers=1, quiet=True)
    assert (upload.stat().st_mtime_ns == trained) == (lost == ("features",))
    assert timeless(run) == timeless(path)
    assert_same_uploads(run, path)
    assert_same_teachers(run, path)
    after = modified(run)
    assert {name: after[name] for name in before} == before


class PowerCut(BaseException):
    """Not an Exception: nothing may catch it."""


FILES = ("briefing", "client-teacher", "events", "features", "trial")


def test_who_only_measures_needs_no_teacher(whole: tuple[Path, Raw], tmp_path: Path) -> None:
    """Teachers were deleted to save space; a further fusion trains nobody anew."""
    path, study = whole
    shutil.copytree(path, tmp_path / "run")
    shutil.rmtree(tmp_path / "run" / "teachers")
    results = accord.run(
        {**study, "fusions": ["outputs"]}, out=tmp_path / "run", workers=1, quiet=True
    )
    assert "outputs" in {row["fusion"] for row in results.rows}
    assert not (tmp_path / "run" / "teachers").exists()


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("when", ["before", "after"])
def test_cut_off_at_any_write_of_a_teacher(
    whole: tuple[Path, Raw],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    when: str,
    name: str,
) -> None:
    """The process ends just before or just after a file of the teacher appears."""
    path, study = whole
    real = Path.replace

    def replace(self: Path, target: Path) -> Path:
        cut = target.stem == name and "teachers" in target.parts
        if cut and when == "before":
            raise PowerCut
        moved = real(self, target)
        if cut:
            raise PowerCut
        return moved

    with monkeypatch.context() as patch:
        patch.setattr(Path, "replace", replace)
        with pytest.raises(PowerCut):
            accord.run(study, out=tmp_path, workers=1, quiet=True)
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert timeless(tmp_path) == timeless(path)
    assert_same_uploads(tmp_path, path)
    assert_same_teachers(tmp_path, path)


def test_a_teacher_goes_on_from_its_state_instead_of_starting_again(
    whole: tuple[Path, Raw], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, study = whole
    epochs, power = [], False
    real = Training.run_epoch

    def counted(self: Training, tell: Any = None) -> Any:
        if self.name == "teacher" and self.epoch == 1 and not power:
            raise PowerCut
        epochs.append((self.name, self.epoch))
        return real(self, tell)

    monkeypatch.setattr(Training, "run_epoch", counted)
    monkeypatch.setattr("accord.federation.tasks.answer.SAVE_EVERY", 0.0)
    with pytest.raises(PowerCut):
        accord.run(study, out=tmp_path, workers=1, quiet=True)
    power = True
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert [epoch for client, epoch in epochs if client == "teacher"] == [0, 1]
    assert_same_teachers(tmp_path, path)
    assert_same_uploads(tmp_path, path)


# --- when it fails -------------------------------------------------------------------------------


def diverging(study: Raw) -> Raw:
    """Weight decay that flips and multiplies weights at every step: two steps are fine, 60 not."""
    study["budget"] = {"epochs": 1, "batch": 64, "lr": 1.0, "weight_decay": 3.0, "clip": None}
    study["budget"]["momentum"] = 0.0
    study["recipes"] = [
        {"use": "public-negatives", "bank": {"teacher_epochs": 60}, "as": "lost"},
        {"use": "reference-coral", "bank": {"teacher_epochs": 60}, "as": "lost-as-well"},
        changed("reference-coral", "short"),
        "fafi",
    ]
    return study


def test_a_teacher_that_diverges_fails_its_trials_and_no_others(study: Raw, tmp_path: Path) -> None:
    diverging(study)
    results = accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert sorted(row["recipe"] for row in results.rows) == ["fafi", "short"]
    failed = {t.info()["recipe"]: t.info() for t in Record(tmp_path).trials()}
    (teacher,) = {failed[name]["teacher"] for name in ("lost", "lost-as-well")}
    for name in ("lost", "lost-as-well"):
        assert failed[name]["status"] == "failed"
        assert failed[name]["failures"] == results.failures[failed[name]["id"]]
        assert teacher in failed[name]["failures"][0]
        assert not list(tmp_path.glob(f"trials/{name}-*/uploads/*"))
    (reason,) = results.failures[teacher]
    assert reason.startswith("the teacher: epoch")
    assert "Lower budget.lr, or set budget.clip." in reason
    assert Record(tmp_path).teacher(teacher).info()["failures"] == [reason]
    assert not list(tmp_path.rglob("defect.txt"))


def test_a_record_read_later_says_why_the_teacher_failed(study: Raw, tmp_path: Path) -> None:
    """The trial's own reason must do: `accord results` shows trials, not teachers."""
    diverging(study)
    study["recipes"] = study["recipes"][:1]
    accord.run(study, out=tmp_path, workers=1, quiet=True)
    ((reason,),) = accord.load(tmp_path).failures.values()
    assert "Lower budget.lr" in reason


def test_a_failed_teacher_is_tried_again(study: Raw, tmp_path: Path) -> None:
    """After a repair elsewhere (here: in the machine) the same command goes on."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "upload", lambda _: 1 / 0)
        results = accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert len(results.failures) == 2
    assert results.rows == []
    assert list(tmp_path.glob("teachers/*/defect.txt"))
    again = accord.run(study, out=tmp_path, workers=1, quiet=True)
    assert not again.failures
    assert [row["recipe"] for row in again.rows] == ["repelled"]
    assert teachers(tmp_path)[0].info()["status"] == "finished"
