"""A saved model and whatever files people point it at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import accord
from accord.cli import app
from accord.core.errors import AccordError
from accord.model.predict import predict
from tests_support import digits, images_of

SEVEN = int(np.flatnonzero(digits()[1] == 7)[0])


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of real digits."""
    path = tmp_path_factory.mktemp("predicting")
    study = {
        "name": "asked",
        "data": {"name": "digits", "train_limit": 300, "test_limit": 40},
        "partition": {"scheme": "iid", "clients": 2},
        "recipes": ["closed-form-small"],
        "references": False,
    }
    accord.run(study, out=path / "run", workers=1, quiet=True)
    accord.fuse(path / "run", ["ridge"], workers=1, quiet=True, save=path / "model")
    return path / "model"


def pixels(row: int = SEVEN) -> np.ndarray[tuple[int, ...], np.dtype[np.uint8]]:
    return digits()[0][row, :, :, 0]


def labels(model: Path, *paths: Path) -> list[str]:
    return [one.label for one in predict(accord.Predictor.load(model), paths, print)]


def test_a_picture_is_seen_as_its_camera_held_it(folder: Path, tmp_path: Path) -> None:
    upright = Image.fromarray(pixels())
    upright.save(tmp_path / "upright.png")
    turned = upright.transpose(Image.Transpose.ROTATE_90)
    exif = turned.getexif()
    exif[0x0112] = 6  # to be shown rotated by 90° clockwise
    turned.save(tmp_path / "turned.png", exif=exif)
    assert labels(folder, tmp_path / "upright.png", tmp_path / "turned.png") == ["7", "7"]


def test_one_bad_file_does_not_cost_the_others_their_answers(folder: Path, tmp_path: Path) -> None:
    images = tmp_path / "images"
    (images / "scan.png").mkdir(parents=True)  # a folder, whatever its name
    (images / "gone.png").symlink_to(tmp_path / "nothing")
    (images / "._7.png").write_bytes(b"notes of a Mac")
    Image.fromarray(pixels()).save(images / "7.png")
    (images / "cut.png").write_bytes((images / "7.png").read_bytes()[:40])
    shown = CliRunner().invoke(app, ["predict", str(folder), str(images)])
    assert shown.exit_code == 1
    assert shown.stdout.split()[0] == "7"
    assert str(images / "7.png") in shown.stdout
    assert "cut.png: expected an image" in shown.stderr
    assert "gone.png" in shown.stderr
    assert shown.stderr.count("accord:") == 2
    alone = CliRunner().invoke(app, ["predict", str(folder), str(images / "cut.png")])
    assert alone.exit_code == 2


def test_a_name_is_never_cut(folder: Path, tmp_path: Path) -> None:
    deep = tmp_path / ("radiology-archive-" * 8) / ("thorax-series-" * 8)
    deep.mkdir(parents=True)
    Image.fromarray(pixels()).save(deep / "patient-000123-a.png")
    shown = CliRunner().invoke(app, ["predict", str(folder), str(deep)])
    assert str(deep / "patient-000123-a.png") in shown.stdout


def test_scans_that_would_come_out_black_are_refused(folder: Path, tmp_path: Path) -> None:
    Image.fromarray(pixels().astype(np.uint16) * 16).save(tmp_path / "scan.png")
    Image.fromarray(pixels()).save(tmp_path / "plain.png")
    with pytest.raises(
        AccordError, match=r"scan\.png: 16-bit images whose brightest pixel is 4,080"
    ):
        labels(folder, tmp_path / "plain.png", tmp_path / "scan.png")
    Image.fromarray(pixels().astype(np.uint16) * 257).save(tmp_path / "scan.png")
    assert labels(folder, tmp_path / "scan.png") == ["7"]


def test_arrays_are_answered_too(folder: Path) -> None:
    model = accord.Predictor.load(str(folder))
    some = images_of([3, 7, 9])
    torch.testing.assert_close(model.scores(some.images[some.rows]), model.scores(some))
    with pytest.raises(AccordError, match=r"uint8 images of shape \(N, 8, 8, 1\); found float64"):
        model.scores(np.zeros((2, 8, 8, 1)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "said"),
    [(".", "is a folder. Name a file"), ("nowhere/model.onnx", "in a folder that exists")],
)
def test_a_file_that_cannot_be_written_is_told_at_once(
    folder: Path, tmp_path: Path, target: str, said: str
) -> None:
    words = ["export", str(folder), "--onnx", str(tmp_path / target)]
    shown = CliRunner().invoke(app, words)
    assert isinstance(shown.exception, AccordError)
    assert said in str(shown.exception)
