"""A student of the fused clients: what it is taught, by whom, and on which images."""

from __future__ import annotations

import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from PIL import Image
from torch import Tensor

import accord
from accord.core.budget import Budget
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.data.imageset import ImageSet
from accord.fusion import fusions
from accord.fusion.average import Average
from accord.fusion.base import CPU, Scene, Uploads
from accord.fusion.distilled import Distilled, teaching_nets
from accord.fusion.evaluate import combiner_of, run_net, summed_votes, voting
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, TrainingSpec
from accord.nets.backbones.conv import WIDTH
from accord.record.record import Record
from accord.study.study import load_study
from core.cases import looped
from tests_support import brief_for, digits, images_of, same

PUBLIC = images_of([label for label in range(10) for _ in range(9)])


def rule(**params: Any) -> Distilled:
    made = make_part(fusions, {"use": "distilled", **params}, "fusion")
    assert isinstance(made, Distilled)
    return made


# --- what is taught ----------------------------------------------------------------------------


def test_probabilities_are_a_softmax_of_scores_in_units_of_their_spread() -> None:
    # Spread (unbiased) of (−1, 1) is √2, of (0, 0) it is 0: mean √2/2.
    scores = torch.tensor([[-1.0, 1.0], [0.0, 0.0]])
    found = rule(sharpness=2.0).probabilities(scores)
    scaled = torch.tensor([[-1.0, 1.0], [0.0, 0.0]]) * 2 / (2**0.5 / 2)
    torch.testing.assert_close(found, scaled.softmax(dim=1))


def test_probabilities_do_not_depend_on_the_scale_or_the_zero_of_scores() -> None:
    scores = torch.randn(20, 5, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(
        rule().probabilities(scores), rule().probabilities(1000 * scores + 7), atol=1e-5, rtol=1e-3
    )


def test_calibrated_divides_by_how_often_the_teacher_says_a_class() -> None:
    scores = torch.tensor([[2.0, 0.0], [2.0, 0.0], [2.0, 1.0], [1.0, 2.0]])
    plain = rule().probabilities(scores)
    share = plain.mean(dim=0)
    assert share.min() > 0.25  # no class is so rare that the bound counts
    expected = plain / share
    found = rule(calibrated=True).probabilities(scores)
    torch.testing.assert_close(found, expected / expected.sum(dim=1, keepdim=True))
    assert found.mean(dim=0)[0] < share[0]


def test_a_class_that_is_never_said_is_not_divided_by_nothing() -> None:
    scores = torch.tensor([[9.0, 0.0, -1e4]] * 3)
    found = rule(calibrated=True, sharpness=50.0).probabilities(scores)
    assert torch.isfinite(found).all()
    assert found[:, 2].max() < 1e-3


def test_a_rare_class_is_divided_by_half_its_fair_share_at_least() -> None:
    # The spread of (1, 0) is 1/√2, so that t = softmax(√2·β, 0) = (0.98, 0.02).
    scores, beta = torch.tensor([[1.0, 0.0]] * 3), math.log(49) / 2**0.5
    plain = rule(sharpness=beta).probabilities(scores)
    assert plain[0].tolist() == pytest.approx([0.98, 0.02], abs=1e-6)
    # Class 1 is divided by ½ · ½ instead of its share of 0.02.
    found = rule(sharpness=beta, calibrated=True).probabilities(scores)
    first, second = 0.98 / 0.98, 0.02 / 0.25
    assert found[0].tolist() == pytest.approx([first / 1.08, second / 1.08], abs=1e-6)


def test_the_work_is_that_of_every_epoch_over_every_image(tmp_path: Path) -> None:
    assert rule(epochs=7).work(12) == 84
    for name in ("a.png", "b.png"):
        Image.fromarray(digits()[0][0, :, :, 0]).save(tmp_path / name)
    assert rule(epochs=7, images=str(tmp_path)).work(12) == 14


def test_the_student_is_told_this_rules_budget_and_terms_in_one_round() -> None:
    header = brief_for("fafi").header.model_copy(update={"round": 2, "rounds": 3})
    briefing = Briefing(header, brief_for("fafi").tensors)
    there = Scene(UploadFiles([], briefing), briefing, PUBLIC)
    lesson = {"targets": torch.ones(90, 10) / 10}
    settings: dict[str, Any] = {"epochs": 5, "batch": 8, "lr": 0.3, "features": 0.25}
    told = rule(start="fresh", **settings).briefing(there, lesson).header
    assert told.budget == Budget(epochs=5, batch=8, lr=0.3, schedule="cosine")
    assert isinstance(told.training, TrainingSpec)
    assert told.training.objective == {"imitation": {}, "feature-imitation": {"weight": 0.25}}
    assert (told.round, told.rounds) == (1, 1)


# --- by whom, on what --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run of three clients who have learnt something, with public images."""
    study = {
        "name": "taught",
        "data": {"name": "digits", "train_limit": 600, "public": 0.5, "augment": "digits"},
        "partition": {"alpha": 0.3, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 12, "batch": 16},
        "recipes": ["etf-balanced"],
        "references": False,
    }
    path = tmp_path_factory.mktemp("taught") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    return path


@pytest.fixture
def run(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "run")
    return tmp_path / "run"


def scene(run: Path, public: ImageSet = PUBLIC) -> Scene:
    (trial,) = Record(run).trials()
    briefing = Briefing.load(trial.briefing)
    paths = sorted((trial.path / "uploads").glob("*.safetensors"))
    return Scene(UploadFiles(paths, briefing), briefing, public)


def said(nets: Uploads, spec: dict[str, Any]) -> Tensor:
    combiner = combiner_of(voting(spec), nets)
    return combiner.decide(summed_votes(nets, PUBLIC, combiner.vote, "cpu"))


def test_the_lesson_is_what_the_teacher_says_and_how_the_clients_see(run: Path) -> None:
    there = scene(run)
    taught = rule(teacher="outputs", features=1.0)
    lesson = taught.lesson(there.uploads, PUBLIC, CPU)
    expected = taught.probabilities(said(there.uploads, {"use": "outputs"}))
    torch.testing.assert_close(lesson["targets"], expected)
    assert lesson["target_features"].shape == (len(PUBLIC), WIDTH)
    sizes = np.array([summary.header.samples for summary in there.uploads.summaries()])
    assert len(set(sizes)) > 1
    seen = [run_net(there.uploads, k, PUBLIC, "cpu").features.numpy() for k in range(len(sizes))]
    units = [features / np.linalg.norm(features, axis=1, keepdims=True) for features in seen]
    mean = np.average(units, axis=0, weights=sizes)
    np.testing.assert_allclose(lesson["target_features"].numpy(), mean, rtol=0, atol=1e-5)
    assert "target_features" not in rule().lesson(there.uploads, PUBLIC, CPU)


def test_a_teacher_that_merges_is_asked_as_the_net_it_makes(run: Path, tmp_path: Path) -> None:
    there = scene(run)
    (average,) = Average().merge(there)
    average.save(tmp_path / "average.safetensors")
    one = UploadFiles([tmp_path / "average.safetensors"], there.briefing, own=True)
    with teaching_nets({"use": "average"}, there) as nets:
        lesson = rule(teacher="average").lesson(nets, PUBLIC, CPU)
    expected = rule().probabilities(said(one, {"use": "average"}))
    torch.testing.assert_close(lesson["targets"], expected)


def test_it_learns_without_labels(run: Path) -> None:
    nobody_knows = replace(PUBLIC, labels=np.zeros_like(PUBLIC.labels))
    (found,) = rule(epochs=1).merge(scene(run, nobody_knows))
    (expected,) = rule(epochs=1).merge(scene(run))
    for name, tensor in found.tensors.items():
        if name != "label_counts":
            assert torch.equal(tensor, expected.tensors[name]), name


@looped("change", [{"features": 1.0}, {"calibrated": True}, {"sharpness": 5.0}, {"start": "fresh"}])
def test_every_parameter_changes_what_is_learnt(run: Path, change: dict[str, Any]) -> None:
    (plain,) = rule(epochs=1).merge(scene(run))
    (other,) = rule(epochs=1, **change).merge(scene(run))
    assert not same(plain.tensors, other.tensors)


def test_a_student_comes_close_to_its_teacher(run: Path) -> None:
    spec = {"use": "distilled", "epochs": 40, "as": "student"}
    rows = accord.fuse(run, ["classwise", spec], workers=1, quiet=True).rows
    accuracy = {row["fusion"]: row["accuracy"] for row in rows}
    assert accuracy["classwise"] > 0.6
    assert accuracy["student"] > 0.8 * accuracy["classwise"]


def test_images_in_a_folder_serve_as_well_as_public_ones(run: Path, tmp_path: Path) -> None:
    pixels, _ = digits()
    (tmp_path / "some").mkdir()
    for row in range(12):
        name = f"{row:02}.png"
        Image.fromarray(pixels[row, :, :, 0]).save(tmp_path / "some" / name)
    (from_folder,) = rule(epochs=1, batch=4, images=str(tmp_path / "some")).merge(scene(run))
    rows = np.arange(12)
    public = ImageSet(pixels, rows, np.zeros(12, dtype=np.int64))
    (from_public,) = rule(epochs=1, batch=4).merge(scene(run, public))
    assert same(from_folder.tensors, from_public.tensors)


# --- mistakes ----------------------------------------------------------------------------------

STUDY = {
    "name": "mistaken",
    "data": {"name": "digits", "train_limit": 60, "test_limit": 20},
    "partition": {"clients": 2},
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 1},
    "recipes": ["fafi"],
    "references": False,
}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        (
            {"use": "distilled"},
            r"fusion 'distilled': 'distilled' needs images.*data\.public.*`images`",
        ),
        ({"use": "distilled", "images": "nowhere"}, r"nowhere: expected an image or a folder"),
        ({"use": "average", "recalibrate": True}, r"fusion 'average': `recalibrate` needs public"),
        (
            {"use": "distilled", "images": "nowhere", "teacher": "client-best"},
            r"expected a fusion of the uploads to imitate, not a reference",
        ),
        ({"use": "distilled", "teacher": "claswise"}, r"claswise.*classwise"),
        ({"use": "distilled", "teacher": {"use": "outputs", "weight": 1}}, r"weight.*weights"),
    ],
)
def test_mistakes_show_before_anyone_trains(
    tmp_path: Path, spec: dict[str, Any], expected: str
) -> None:
    with pytest.raises(AccordError, match=expected):
        accord.run({**STUDY, "fusions": [spec]}, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_transport_refuses_group_norm_before_anyone_trains(tmp_path: Path) -> None:
    study = {**STUDY, "fusions": ["transport"], "net": {"backbone": "conv4", "norm": "group"}}
    with pytest.raises(AccordError, match=r"'transport' reorders channels.*net\.norm"):
        accord.run(study, out=tmp_path / "run", quiet=True)
    assert not (tmp_path / "run").exists()


def test_a_folder_of_images_is_meant_from_where_it_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = {"use": "distilled", "images": "some"}
    (tmp_path / "study.yaml").write_text(yaml.safe_dump({**STUDY, "fusions": [entry]}))
    study = load_study(tmp_path / "study.yaml")
    assert study.fusions[0].spec["images"] == str(tmp_path / "some")
    monkeypatch.chdir(tmp_path)
    assert load_study({**STUDY, "fusions": [entry]}).fusions == study.fusions
