"""A small net that learns from the closed form."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import accord
from accord.core.errors import AccordError
from accord.model.predictor import Predictor
from closed_run import TEST, accuracy

STUDENT = "{use: distilled, teacher: ridge, epochs: 60, batch: 16}"
SHORT = STUDENT.replace("60", "2")


def test_a_small_net_learns_what_the_closed_form_says(record: Path, tmp_path: Path) -> None:
    accord.fuse(record, [STUDENT], workers=1, quiet=True, save=tmp_path / "student")
    # 60 public images without labels, a net that nobody trained before.
    assert accuracy(record, "distilled") > 0.6
    model = Predictor.load(tmp_path / "student")
    assert model.header.net.map is None
    assert model.header.net.backbone == "conv4"


def test_a_student_learns_the_same_again(record: Path, tmp_path: Path) -> None:
    said = []
    for name in ("one", "two"):
        accord.fuse(record, [SHORT], workers=1, quiet=True, save=tmp_path / name)
        said.append(Predictor.load(tmp_path / name).scores(TEST))
    assert torch.equal(*said)


def test_a_student_of_those_who_stayed(record: Path, tmp_path: Path) -> None:
    accord.fuse(record, [SHORT], remove=["2"], workers=1, quiet=True, save=tmp_path / "student")
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
