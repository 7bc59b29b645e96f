"""`accord teacher`: one net that learns from known images and is saved as a model."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

import accord
from accord.cli import main
from accord.client.telemetry import Event
from accord.client.training import Training
from accord.data.allocation import Allocation, open_allocation
from accord.messages import NET, Upload, unprefixed
from accord.messages.saved_model import SavedModel
from accord.model.predictor import Predictor
from accord.record.record import Record
from accord.study.teacher_study import teacher_study
from tests_support import same

Raw = dict[str, Any]
Said = tuple[int, str, str]
Call = Callable[..., Said]
FAST = ("--workers", "1", "--epochs", "2", "--backbone", "conv4")


@pytest.fixture
def call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Call:
    """`accord teacher` in the folder tmp_path: its exit code, its output and its errors."""
    monkeypatch.chdir(tmp_path)

    def teacher(*words: str | Path) -> Said:
        monkeypatch.setattr(sys, "argv", ["accord", "teacher", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0), *capsys.readouterr()

    return teacher


@pytest.fixture
def file(study: Raw, tmp_path: Path) -> Path:
    """A study with a grid, rounds, and a section of a later version."""
    study["data"] |= {"public": 0.2, "validation": 0.1}
    study["partition"]["alpha"] = [0.5, 0.1]
    study |= {"net": {"backbone": "resnet10", "norm": "group"}, "seeds": [5, 6]}
    study |= {"recipes": ["fafi", "fedavg"], "rounds": {"count": 3}}
    study["teacher"] = {"backbone": "conv4", "model": "none"}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    return path


def allocation_of(run_dir: Path) -> Allocation:
    (path,) = (run_dir / "allocations").glob("*.json")
    return open_allocation(path)


def weights_of(model: Path) -> dict[str, Any]:
    return SavedModel.load(model).weights(0)


def test_the_saved_model_has_the_accuracy_that_is_printed(call: Call, tmp_path: Path) -> None:
    code, out, _ = call("digits", "--save", "model", *FAST)
    assert code == 0
    assert "\x1b" not in out
    record = tmp_path / "runs/teacher-digits-conv4-public-s0"
    lines = dict(line.split(": ") for line in out.splitlines())
    assert lines["record"] == str(record.relative_to(tmp_path))
    assert lines["model"] == "model"
    allocation = allocation_of(record)
    assert lines["learnt from"] == f"{len(allocation.split.public)} images"
    test = allocation.part("test")
    found = Predictor.load(Path("model")).scores(test).argmax(dim=1).numpy()
    accuracy = float(np.mean(found == test.labels))
    assert lines["test accuracy"] == f"{100 * accuracy:.1f} %"
    assert SavedModel.load(Path("model")).header.origin["accuracy"] == pytest.approx(accuracy)


def test_it_learns_from_the_study_s_public_images_of_the_seed(call: Call, file: Path) -> None:
    """The net is, bit for bit, the first net of the study's own recipe public-teacher."""
    raw = yaml.safe_load(file.read_text())
    kept = {key: raw[key] for key in ("name", "data", "partition", "budget", "references")}
    kept |= {"net": {"backbone": "conv4", "norm": "group"}, "seeds": [1]}
    recipe = {"use": "public-teacher", "budget": {"epochs": 2}, "as": "public-teacher"}
    accord.run({**kept, "recipes": [recipe]}, out="run", workers=1, quiet=True)
    words = ("--workers", "1", "--epochs", "2", "--seed", "1")
    code, out, _ = call(file, "--save", "model", *words)
    assert code == 0
    assert "learnt from: 30 images\nrecord: runs/teacher-tiny-digits-conv4-public-s1" in out
    (upload,) = Path("run").glob("trials/*/uploads/client-0.safetensors")
    assert same(unprefixed(NET, Upload.load(upload).tensors), weights_of(Path("model")))


def test_all_training_images_are_those_of_clients_and_the_public_ones(
    call: Call, file: Path
) -> None:
    code, out, _ = call(file, "--save", "model", "--on", "train", *FAST)
    assert code == 0
    assert "learnt from: 138 images\nrecord: runs/teacher-tiny-digits-conv4-train-s0" in out
    split = allocation_of(Path("runs/teacher-tiny-digits-conv4-train-s0")).split
    assert set(split.public) <= set(split.train)
    assert not set(split.validation) & set(split.train)
    assert len(split.public) == 30
    code, out, _ = call("digits", "data.train_limit=150", "--save", "m", "--on", "train", *FAST)
    assert "learnt from: 150 images" in out


def test_again_and_after_an_interruption_the_bits_are_the_same(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("digits", "data.train_limit=400", "budget.checkpoints=[1,2]", *FAST)
    assert call(*words, "--save", "one", "--out", "whole")[0] == 0
    real, epochs = Training.run_epoch, []

    def stopped(self: Training, tell: Any = None) -> Event:
        epochs.append(self.epoch)
        if epochs == [0, 1]:
            raise KeyboardInterrupt
        return real(self, tell)

    monkeypatch.setattr(Training, "run_epoch", stopped)
    code, _, error = call(*words, "--save", "two", "--out", "cut")
    assert code == 130
    assert "Run the same command again to go on." in error
    assert not Path("two").exists()
    for _ in range(2):  # the second time, nothing is left to be trained
        assert call(*words, "--save", "two", "--out", "cut")[0] == 0
        assert epochs == [0, 1, 1]
        assert same(weights_of(Path("one")), weights_of(Path("two")))


def test_own_images_and_the_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    images = np.random.default_rng(0).integers(0, 256, (80, 8, 8), dtype=np.uint8)
    np.savez("scans of 7.npz", images=images, labels=np.arange(80) % 2)
    changes = ["data.path=scans of 7.npz", "data.public=0.5", "net.backbone=conv4"]
    results = accord.teacher(
        "npz", "model", overrides=changes, epochs=1, workers=1, quiet=True, seed=3
    )
    assert results.path == Path("runs/teacher-npz-scans_of_7-conv4-public-s3")
    assert Predictor.load(Path("model")).header.nets == 1
    (trial,) = Record(results.path).trials()
    assert trial.info()["label_counts"] == [[16, 16]]


def test_the_budget_is_the_recipe_s_unless_the_command_says_otherwise(file: Path) -> None:
    (own,) = teacher_study(file).setups
    assert (own.budget.epochs, own.budget.batch, own.budget.lr) == (70, 128, 0.1)
    changes = ["budget.lr=0.01", "budget.epochs=9"]
    (changed,) = teacher_study(file, changes).setups
    assert (changed.budget.epochs, changed.budget.lr) == (9, 0.01)
    assert teacher_study(file, changes, epochs=3).setups[0].budget.epochs == 3
    raw = yaml.safe_load(file.read_text())
    assert teacher_study({**raw, "teacher": None}).setups[0].net.backbone == "resnet10"
    assert teacher_study(raw, backbone="resnet18").setups[0].net.backbone == "resnet18"


def test_a_training_that_fails_gives_exit_code_1_and_no_model(call: Call) -> None:
    code, out, error = call("digits", "budget.lr=1e30", "--save", "model", *FAST)
    assert code == 1
    assert "failed: public-teacher-s0-" in out
    assert "Traceback" not in out + error
    assert not Path("model").exists()


def test_mistakes_give_exit_code_2_and_a_sentence(call: Call, file: Path, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine/thesis.txt").write_text("mine")
    save, digits = ("--save", "model"), ("digits", "--workers", "1")
    for words, said in (
        ((*digits, *save, "--backbone", "convv4"), "did you mean 'conv4'"),
        (("digts", *save), "did you mean 'digits'"),
        ((*digits, *save, "--epochs", "0"), "--epochs: expected 1 or more; found 0."),
        ((*digits, *save, "--seed", "-1"), "--seed: expected a whole number from 0"),
        ((*digits, *save, "--on", "other"), "--on: expected public or train; found 'other'."),
        ((*digits, *save, "--workers", "0"), "--workers: expected 1 to "),
        ((*digits, "--save", file), "study.yaml: this is a file. Choose another folder."),
        ((*digits, "--save", "mine"), "the folder holds 'thesis.txt'"),
        ((*digits, "--save", "/proc/model"), "--save /proc/model cannot be written"),
        ((*digits, "--save", "r", "--out", "r"), "the record of the training is written to r"),
        ((*digits, "--save", "r", "--out", "r/s"), "the record of the training is written to r"),
        ((*digits, "--out", "mine", *save), "not a run directory"),
        (digits, "Missing option '--save'"),
        (("none.yaml", *save), "none.yaml does not exist."),
        ((*digits, "data.public=0", *save), "data.public is 0. Set it"),
        ((file, "data.public=0", *save), "or use --on train"),
        ((file, "data.name=[digits,mnist]", *save), "for example data.name=digits."),
        ((file, "teacher.backbone=[conv4,resnet10]", *save), "for example --backbone conv4."),
        ((file, "teacher=conv4", *save), "'teacher': expected a mapping of keys"),
        ((file, "partition.alhpa=1", *save), "did you mean 'alpha'"),
        ((file, "data=digits", *save), "'data': expected a mapping of keys"),
        ((file, "budget.lr=0", *save), "'budget.lr'"),
        (("npz", *save), "'npz' needs `data.path`"),
    ):
        code, out, error = call(*words)
        assert (code, out) == (2, ""), error
        assert said in error
        assert "Traceback" not in error
        assert error.count("\n") <= 4
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "study.yaml"}


def test_another_teacher_in_the_same_record_is_refused(call: Call) -> None:
    words = ("digits", "--save", "model", "--out", "r", "data.train_limit=200", *FAST)
    assert call(*words)[0] == 0
    before = weights_of(Path("model"))
    for more, said in (
        (["--epochs", "3"], "budget.epochs was 2, now it is 3. Choose another folder for"),
        (["--seed", "1"], "name was 'teacher-digits-conv4-public-s0'"),
        (["--on", "train"], "now it is 'teacher-digits-conv4-train-s0'"),
        (["data.public=0.2"], "data.public was 0.1, now it is 0.2"),
    ):
        code, _, error = call(*words, *more)
        assert (code, said in error) == (2, True), error
    assert same(weights_of(Path("model")), before)
