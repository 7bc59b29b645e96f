"""A client who has the briefing and its own images makes the upload it would have made inside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

import accord
from accord.cli import main
from accord.data.deal import open_deal
from accord.data.imageset import ImageSet
from accord.errors import AccordError
from accord.messages import Briefing, Upload
from accord.record import Record
from closed_run import run, scores, uploads


def briefing(record: Path) -> Path:
    (trial,) = Record(record).trials()
    return trial.briefing


def images_of_client(record: Path, index: int) -> ImageSet:
    (path,) = record.glob("deals/*.json")
    return open_deal(path).client(index)


def as_npz(data: ImageSet, path: Path, **more: Any) -> Path:
    np.savez(path, images=data.images[data.rows], labels=data.labels, **more)
    return path


def as_folder(data: ImageSet, path: Path, name: str = "{}") -> Path:
    for row, label in zip(data.rows.tolist(), data.labels.tolist(), strict=True):
        file = path / name.format(label) / f"{row:05}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(data.images[row][..., 0]).save(file)
    return path


def test_the_upload_is_that_of_the_study(record: Path, tmp_path: Path) -> None:
    file = as_npz(images_of_client(record, 3), tmp_path / "mine.npz")
    inside = Upload.load(uploads(record)[3])
    outside = accord.answer(briefing(record), file, "3")
    assert outside.header.client == inside.header.client == "3"
    assert outside.tensors.keys() == inside.tensors.keys()
    for name, tensor in inside.tensors.items():
        assert torch.equal(outside.tensors[name], tensor), name


def test_class_folders_may_lack_classes(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    assert set(data.labels.tolist()) < set(range(10))
    found = accord.answer(briefing(record), as_folder(data, tmp_path / "mine"), "3")
    for name, tensor in Upload.load(uploads(record)[3]).tensors.items():
        torch.testing.assert_close(found.tensors[name], tensor, rtol=1e-4, atol=1e-4)


def test_one_class_is_enough(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    first = data.take(np.flatnonzero(data.labels == data.labels[0]))
    found = accord.answer(briefing(record), as_folder(first, tmp_path / "mine"), "clinic")
    assert found.tensors["label_counts"][data.labels[0]] == found.header.samples == len(first)
    found.check(Briefing.load(briefing(record)), "clinic")


def test_classes_go_by_name_where_a_file_has_names(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    order = [str(digit) for digit in reversed(range(10))]
    turned = ImageSet(data.images, data.rows, 9 - data.labels)
    file = as_npz(turned, tmp_path / "mine.npz", classes=np.array(order))
    found = accord.answer(briefing(record), file, "3")
    assert torch.equal(
        found.tensors["label_counts"], Upload.load(uploads(record)[3]).tensors["label_counts"]
    )
    more = as_npz(data, tmp_path / "more.npz", classes=np.array([f"{d}?" for d in range(10)]))
    with pytest.raises(AccordError, match=r"more\.npz: class '\d\?' is not among those of the stu"):
        accord.answer(briefing(record), more, "3")


def test_a_corrected_upload_takes_the_place_of_the_old_one(record: Path, tmp_path: Path) -> None:
    everybody = scores(record, tmp_path / "a")
    file = as_npz(images_of_client(record, 3), tmp_path / "mine.npz")
    corrected = tmp_path / "corrected.safetensors"
    accord.answer(briefing(record), file, "3").save(corrected)
    again = scores(record, tmp_path / "b", remove=["3"], add=[corrected])
    torch.testing.assert_close(again, everybody, rtol=1e-4, atol=1e-3)
    with pytest.raises(AccordError, match="would count twice"):
        scores(record, tmp_path / "c", add=[corrected])


def test_images_of_another_size_are_converted_and_that_is_said(
    record: Path, tmp_path: Path
) -> None:
    file = tmp_path / "large.npz"
    np.savez(file, images=np.zeros((3, 20, 12, 3), np.uint8), labels=np.array([0, 1, 1]))
    told: list[str] = []
    found = accord.answer(briefing(record), file, "x", told.append)
    assert found.header.samples == 3
    assert any("images converted from 20×12×3 to 8×8×1" in line for line in told)


@pytest.mark.parametrize("name", ["", "  ", "a\nb"])
def test_a_name_that_is_none_is_refused(record: Path, tmp_path: Path, name: str) -> None:
    file = as_npz(images_of_client(record, 3), tmp_path / "mine.npz")
    with pytest.raises(AccordError, match="the client's name: expected a word"):
        accord.answer(briefing(record), file, name)


def test_images_of_no_class_of_the_study_are_refused(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    folder = as_folder(data, tmp_path / "mine", "digit {}")
    with pytest.raises(AccordError, match="this class is not among those of the study"):
        accord.answer(briefing(record), folder, "x")
    beyond = ImageSet(data.images, data.rows, data.labels + 8)
    with pytest.raises(AccordError, match=r"mine\.npz: row \d+ has label 1\d; expected 0 to 9"):
        accord.answer(briefing(record), as_npz(beyond, tmp_path / "mine.npz"), "x")
    with pytest.raises(AccordError, match="does not exist"):
        accord.answer(briefing(record), tmp_path / "nowhere", "x")


def test_a_briefing_to_train_is_refused(tmp_path: Path) -> None:
    record = run(tmp_path / "run", recipes=["ce-ensemble"], budget={"epochs": 1, "batch": 64})
    with pytest.raises(AccordError, match="asks its clients to train a net"):
        accord.answer(briefing(record), tmp_path, "x")


def test_the_command_writes_an_upload_to_add(
    record: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder = as_folder(images_of_client(record, 2), tmp_path / "mine")
    out = tmp_path / "clinic.safetensors"
    asked = ["accord", "answer", str(briefing(record)), str(folder), "--name", "clinic"]
    monkeypatch.setattr("sys.argv", [*asked, "--out", str(out)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "images of clinic" in capsys.readouterr().out
    monkeypatch.setattr(
        "sys.argv",
        ["accord", "fuse", str(record), "--fusion", "ridge", "--add", str(out), "--workers", "1"],
    )
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    assert "ridge-with-clinic" in capsys.readouterr().out
