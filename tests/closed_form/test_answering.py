"""A client who has the briefing and its own images makes the upload it would have made inside."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import accord
from accord.cli import app, main
from accord.core.errors import AccordError
from accord.data.allocation import open_allocation
from accord.data.imageset import ImageSet
from accord.messages import Briefing, NetHeader, SummingSpec, TrainingSpec, Upload
from accord.record.record import Record
from closed_run import scores, uploads

Damage = Callable[[Briefing], Briefing]


def briefing(record: Path) -> Path:
    (trial,) = Record(record).trials()
    return trial.briefing


def images_of_client(record: Path, index: int) -> ImageSet:
    (path,) = record.glob("allocations/*.json")
    return open_allocation(path).client(index)


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


@pytest.mark.parametrize("name", ["", "  ", "a\nb", "3 ", "x" * 101])
def test_a_name_that_is_none_is_refused(record: Path, tmp_path: Path, name: str) -> None:
    file = as_npz(images_of_client(record, 3), tmp_path / "mine.npz")
    with pytest.raises(AccordError, match="the client's name: expected a name of up to 100"):
        accord.answer(briefing(record), file, name)


def test_images_of_no_class_of_the_study_are_refused(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    folder = as_folder(data, tmp_path / "mine", "digit {}")
    with pytest.raises(AccordError, match="this class is not among those of the study"):
        accord.answer(briefing(record), folder, "x")
    beyond = ImageSet(data.images, data.rows, data.labels + 8)
    with pytest.raises(AccordError, match=r"mine\.npz: row \d+ has label 1\d; expected 0 to 9"):
        accord.answer(briefing(record), as_npz(beyond, tmp_path / "mine.npz"), "x")
    with pytest.raises(
        AccordError, match=r"expected a folder with a folder per class, .* found nothing"
    ):
        accord.answer(briefing(record), tmp_path / "nowhere", "x")


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


def test_class_names_tell_classes_apart(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    file = as_npz(data, tmp_path / "twice.npz", classes=np.array(list("0123456788")))
    with pytest.raises(AccordError, match=r"twice\.npz: expected class names that differ"):
        accord.answer(briefing(record), file, "x")
    file = as_npz(data, tmp_path / "latin.npz", classes=np.array([b"\xe9"] * 10))
    with pytest.raises(AccordError, match=r"latin\.npz: array 'classes' is text but not UTF-8"):
        accord.answer(briefing(record), file, "x")


def test_hidden_folders_hold_no_images(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    folder = as_folder(data, tmp_path / "mine")
    (first, *_) = sorted(folder.iterdir())
    shutil.copytree(first, first / ".thumbs")
    told: list[str] = []
    found = accord.answer(briefing(record), folder, "x", told.append)
    assert found.header.samples == len(data)
    assert not told


def test_a_link_to_a_folder_of_a_class_is_that_folder(record: Path, tmp_path: Path) -> None:
    data = images_of_client(record, 3)
    folder = as_folder(data, tmp_path / "mine")
    (first, *_) = sorted(folder.iterdir())
    shutil.move(first, tmp_path / "elsewhere")
    first.symlink_to(tmp_path / "elsewhere")
    (folder / "notes.txt").write_text("")
    told: list[str] = []
    assert accord.answer(briefing(record), folder, "x", told.append).header.samples == len(data)
    assert told == [f"{folder}: 1 files that are not images of a class were left out"]


def _without(name: str) -> Damage:
    return lambda b: Briefing(b.header, {k: v for k, v in b.tensors.items() if k != name})


def _with_tensor(name: str, value: float) -> Damage:
    return lambda b: Briefing(
        b.header, {k: torch.full_like(v, value) if k == name else v for k, v in b.tensors.items()}
    )


def _with_header(**changes: Any) -> Damage:
    return lambda b: Briefing(b.header.model_copy(update=changes), b.tensors)


DICTIONARY = "net.encoder.blocks.0.dictionary"


@pytest.mark.parametrize(
    "damage",
    [
        _without(DICTIONARY),
        _with_tensor(DICTIONARY, float("nan")),
        _with_header(std=(0.0,)),
        _with_header(training=TrainingSpec()),
        _with_header(training=SummingSpec(map={}).model_copy(update={"packing": "zip"})),
        _with_header(net=NetHeader(backbone="x", norm="batch", head="linear", map={"size": 3})),
    ],
    ids=["a tensor is missing", "NaN", "std 0", "another task", "another packing", "another map"],
)
def test_a_damaged_briefing_is_named(record: Path, tmp_path: Path, damage: Damage) -> None:
    file = as_npz(images_of_client(record, 3), tmp_path / "mine.npz")
    broken = tmp_path / "broken.safetensors"
    damage(Briefing.load(briefing(record))).save(broken)
    with pytest.raises(AccordError, match=r"broken\.safetensors.* [Ff]etch it again"):
        accord.answer(broken, file, "x")


@pytest.mark.parametrize(
    ("out", "said"),
    [
        ("{briefing}", "is one of the inputs"),
        ("{folder}", "is one of the inputs"),
        ("{folder}/0/x.safetensors", "is one of the inputs"),
        ("{tmp}", "is a folder"),
        ("{tmp}/notes.txt", "is no upload that could be written again"),
        ("{tmp}/notes.txt/x", "expected a file in a folder that exists"),
        ("{tmp}/" + "x" * 300, "can.?not be"),
    ],
)
def test_an_answer_takes_no_other_files_place(
    record: Path, tmp_path: Path, out: str, said: str
) -> None:
    folder = as_folder(images_of_client(record, 2), tmp_path / "mine")
    (tmp_path / "notes.txt").write_text("mine")
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    target = out.format(briefing=briefing(record), folder=folder, tmp=tmp_path)
    asked = ["answer", str(briefing(record)), str(folder), "--name", "x", "--out", target]
    with pytest.raises(AccordError, match=said):
        CliRunner().invoke(app, asked, catch_exceptions=False)
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
