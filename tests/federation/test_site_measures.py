"""What a row says about a site, computed a second time from saved models, uploads and images."""

from __future__ import annotations

import csv
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import accuracy_score, log_loss, recall_score

import accord
from accord.data.allocation import open_allocation
from accord.federation.measuring import blocks
from accord.messages import NET, Briefing, Upload, unprefixed
from accord.model.predictor import Predictor
from accord.nets.net import loaded_net
from accord.record.folders import TrialFolder
from accord.record.record import Record
from clinics import CLINICS, LARGE, NONE, OTHER, SINGLE, Arrays, study_of, write_clinics
from federation.test_measuring import calibration_error

Floats = NDArray[np.float64]
Row = dict[str, Any]
MEASURED = (OTHER, SINGLE, LARGE)  # the clinics with test images
BLOCK = 17  # images per job, so that every figure is put together from several blocks


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Arrays]:
    """A finished run of four clinics with both references, measured in small blocks of images."""
    folder = tmp_path_factory.mktemp("sites")
    arrays = write_clinics(folder / "clinics.npz")
    recipes = ["ce-ensemble", "closed-form-small"]
    study = study_of(folder / "clinics.npz", recipes=recipes, fusions=["average"], references=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", BLOCK)
        accord.run(study, out=folder / "run", workers=1, quiet=True)
    return folder / "run", arrays


@pytest.fixture
def run(made: tuple[Path, Arrays], tmp_path: Path) -> Path:
    """A copy of the run, which a test may change."""
    shutil.copytree(made[0], tmp_path / "run")
    return tmp_path / "run"


@pytest.fixture
def arrays(made: tuple[Path, Arrays]) -> Arrays:
    return made[1]


def trial_of(run: Path, recipe: str) -> TrialFolder:
    return next(t for t in Record(run).trials() if t.info()["recipe"] == recipe)


def rows_at(run: Path, recipe: str, fusion: str) -> dict[str, Row]:
    rows = accord.load(run).sites()
    return {r["site"]: r for r in rows if (r["recipe"], r["fusion"]) == (recipe, fusion)}


def figures(probabilities: Floats, labels: NDArray[np.int64]) -> dict[str, float]:
    """The figures by scikit-learn; only classes that occur count."""
    said, classes = probabilities.argmax(axis=1), np.unique(labels)
    recalls = recall_score(labels, said, labels=classes, average=None, zero_division=0)
    return {
        "images": len(labels),
        "accuracy": float(accuracy_score(labels, said)),
        "balanced_accuracy": float(np.mean(recalls)),
        "worst_class": float(np.min(recalls)),
        "ece": calibration_error(probabilities, labels),
        "loss": float(log_loss(labels, probabilities, labels=range(10))),
    }


def at_sites(probabilities: Floats, arrays: Arrays) -> dict[str, dict[str, float]]:
    """The figures of each clinic on its own test images."""
    found = {}
    for site in MEASURED:
        mine = arrays["clinic_test"] == site
        found[site] = figures(probabilities[mine], arrays["y_test"][mine])
    return found


def predicted(run: Path, recipe: str, fusion: str, arrays: Arrays, **options: Any) -> Floats:
    """softmax of the saved model's scores of all test images."""
    trial = trial_of(run, recipe).id
    accord.fuse(run, [fusion], trial=trial, save=run / "model", workers=1, quiet=True, **options)
    scores = Predictor.load(run / "model").scores(arrays["x_test"])
    found: Floats = softmax(scores.double().numpy(), axis=1)
    return found


def alone(run: Path, recipe: str, client: int, arrays: Arrays) -> Floats:
    """softmax of the logits of one client's own net on all test images, normalised by hand."""
    trial = trial_of(run, recipe)
    header = Briefing.load(trial.briefing).header
    upload = Upload.load(trial.round(1).upload(CLINICS[client], 0, last=True))
    weights = unprefixed(NET, upload.tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights).eval()
    pixels = torch.from_numpy(arrays["x_test"]).permute(0, 3, 1, 2) / 255
    shaped = [torch.tensor(values)[:, None, None] for values in (header.mean, header.std)]
    with torch.no_grad():
        logits = net((pixels - shaped[0]) / shaped[1])[1]
    found: Floats = softmax(logits.double().numpy(), axis=1)
    return found


def assert_figures(row: Row, expected: dict[str, float]) -> None:
    for key, value in expected.items():
        assert row[key] == pytest.approx(value, abs=1e-5), (row["site"], key)


def test_each_site_has_the_figures_of_the_saved_model_on_its_own_images(
    run: Path, arrays: Arrays
) -> None:
    models = [
        ("ce-ensemble", "outputs"),
        ("ce-ensemble", "average"),
        ("closed-form-small", "ridge"),
        ("central", "outputs"),
    ]
    for recipe, fusion in models:
        rows = rows_at(run, recipe, fusion)
        assert tuple(rows) == CLINICS
        expected = at_sites(predicted(run, recipe, fusion, arrays), arrays)
        for site in MEASURED:
            assert_figures(rows[site], expected[site])
        assert rows[NONE]["images"] == 0
        assert rows[NONE]["accuracy"] is None
        assert all(row["took_part"] for row in rows.values())
        whole = next(
            r for r in accord.load(run).rows if (r["recipe"], r["fusion"]) == (recipe, fusion)
        )
        accuracies = [expected[site]["accuracy"] for site in MEASURED]
        assert whole["site_worst"] == pytest.approx(min(accuracies))
        assert whole["worst_site"] == MEASURED[int(np.argmin(accuracies))]
        assert whole["site_mean"] == pytest.approx(np.mean(accuracies))
        assert whole["site_spread"] == pytest.approx(np.std(accuracies))


def test_a_class_is_absent_at_a_site_and_a_site_has_one_image(arrays: Arrays) -> None:
    """The data of these tests are as hard as they should be."""
    sites, labels = arrays["clinic_test"], arrays["y_test"]
    assert set(labels[sites == OTHER]) < set(labels[sites == LARGE])
    assert (sites == SINGLE).sum() == 1
    assert min((sites == site).sum() for site in (OTHER, LARGE)) > 10
    assert len(labels) > 2 * BLOCK


def test_own_nets_and_bounds_stand_beside_each_site(run: Path, arrays: Arrays) -> None:
    nets = [at_sites(alone(run, "ce-ensemble", k, arrays), arrays) for k in range(len(CLINICS))]
    local = [at_sites(alone(run, "local-only", k, arrays), arrays) for k in range(len(CLINICS))]
    central = rows_at(run, "central", "outputs")
    means, fused = rows_at(run, "local-only", "client-mean"), rows_at(run, "ce-ensemble", "average")
    sums = rows_at(run, "closed-form-small", "ridge")
    for site in MEASURED:
        home = CLINICS.index(site)
        assert fused[site]["own_accuracy"] == pytest.approx(nets[home][site]["accuracy"])
        assert_figures(means[site], local[home][site])
        assert sums[site]["own_accuracy"] is None
        assert central[site]["own_accuracy"] is None
        for row in (fused[site], sums[site]):
            assert row["local_accuracy"] == means[site]["accuracy"]
            assert row["central_accuracy"] == central[site]["accuracy"]
    assert not rows_at(run, "local-only", "client-best")


def new_rows(run: Path, before: list[Row]) -> dict[str, Row]:
    """Site → its row, of the fusion that was not among the rows `before`."""
    known = {(row["recipe"], row["fusion"]) for row in before}
    rows = accord.load(run).sites()
    assert [row for row in rows if (row["recipe"], row["fusion"]) in known] == before
    return {r["site"]: r for r in rows if (r["recipe"], r["fusion"]) not in known}


def test_fusing_again_keeps_and_adds_the_figures_of_sites(run: Path, arrays: Arrays) -> None:
    before = accord.load(run).sites()
    measures = trial_of(run, "ce-ensemble").path / "measures.json"
    for recipe, fusion, gone, options in (
        ("ce-ensemble", "outputs", LARGE, {"without": [LARGE]}),
        ("closed-form-small", "ridge", OTHER, {"remove": [OTHER]}),
    ):
        now = accord.load(run).sites()
        expected = at_sites(predicted(run, recipe, fusion, arrays, **options), arrays)
        rows = new_rows(run, now)
        for site in MEASURED:
            assert_figures(rows[site], expected[site])
            assert rows[site]["took_part"] == (site != gone)
            assert rows[site]["local_accuracy"] is not None
            has_net = recipe == "ce-ensemble" and site != gone
            assert (rows[site]["own_accuracy"] is not None) == has_net
    # Fusions that are measured again have the same figures.
    measures.unlink()
    accord.fuse(run, ["outputs", "average"], trial="ce-ensemble", workers=1, quiet=True)
    again = [row for row in accord.load(run).sites() if row["recipe"] == "ce-ensemble"]
    known = [row for row in before if row["recipe"] == "ce-ensemble"]
    for row, old in zip(again, known, strict=True):
        assert row == pytest.approx(old)


def test_sites_csv_holds_every_row(run: Path) -> None:
    with (run / "sites.csv").open(encoding="utf-8", newline="") as file:
        written = list(csv.DictReader(file))
    rows = accord.load(run).sites()
    assert [row["site"] for row in written] == [row["site"] for row in rows]
    assert [row["accuracy"] for row in written] == [
        "" if row["accuracy"] is None else str(row["accuracy"]) for row in rows
    ]
    assert list(written[0]) == list(rows[0])


def test_a_site_takes_part_from_its_first_round_on(
    made: tuple[Path, Arrays], tmp_path: Path
) -> None:
    """Each round asks one clinic; its images are in the model of later rounds, too."""
    rounds = {"count": 3, "fraction": 0.25}
    study = study_of(made[0].parent / "clinics.npz", recipes=["fedavg"], rounds=rounds)
    study["budget"] = {"epochs": 1, "batch": 32}
    results = accord.run(study, out=tmp_path / "run", workers=1, quiet=True)
    asked: set[str] = set()
    for row in results.rows:
        (now,) = [row["took_part"]]
        asked.add(now)
        found = [r for r in results.sites() if r["round"] == row["round"]]
        assert {r["site"] for r in found if r["took_part"]} == asked
        own = {r["site"] for r in found if r["own_accuracy"] is not None}
        assert own == {now} - {NONE}  # only the clinic that trained in this round has a net
    assert 1 < len(asked) < len(CLINICS)


@pytest.fixture(scope="module")
def left_out(
    made: tuple[Path, Arrays], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, dict[str, tuple[NDArray[np.uint8], NDArray[np.int64]]]]:
    """A run in which all clinics hold out images and one takes no part, with their images."""
    path = made[0].parent / "clinics.npz"
    study = study_of(path, references=True, budget={"epochs": 2, "batch": 16})
    study["data"] |= {"test_per_client": 0.3}
    study["partition"] |= {"leave_out": LARGE}
    run = tmp_path_factory.mktemp("left") / "run"
    accord.run(study, out=run, workers=1, quiet=True)
    (allocation,) = {
        open_allocation(file)
        for file in (run / "allocations").glob("*.json")
        if len(open_allocation(file).partition.names) == 3  # not the one of pooled images
    }
    arrays, held = made[1], {}
    for site, rows in zip(CLINICS, allocation.partition.own, strict=True):
        assert set(arrays["clinic_train"][rows]) == {site}
        for client in range(3):
            assert not {*rows.tolist()} & {*allocation.client(client).rows.tolist()}
        mine = arrays["clinic_test"] == site
        images = np.concatenate([arrays["x_test"][mine], arrays["x_train"][rows]])
        held[site] = images, np.concatenate([arrays["y_test"][mine], arrays["y_train"][rows]])
    return run, held


def test_images_that_sites_hold_out_count_with_their_test_images(
    left_out: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    run, held = tmp_path / "run", left_out[1]
    shutil.copytree(left_out[0], run)
    for recipe in ("ce-ensemble", "central"):
        trial = trial_of(run, recipe).id
        accord.fuse(run, ["outputs"], trial=trial, save=run / "model", workers=1, quiet=True)
        model, rows = Predictor.load(run / "model"), rows_at(run, recipe, "outputs")
        assert tuple(rows) == CLINICS
        for site, (images, labels) in held.items():
            probabilities = softmax(model.scores(images).double().numpy(), axis=1)
            assert_figures(rows[site], figures(probabilities, labels))
            assert rows[site]["took_part"] == (site != LARGE)


def test_a_site_that_is_left_out_is_measured_but_has_no_net(
    left_out: tuple[Path, dict[str, Any]],
) -> None:
    run, held = left_out
    for recipe, fusion in (("ce-ensemble", "outputs"), ("local-only", "client-mean")):
        rows = rows_at(run, recipe, fusion)
        for site in CLINICS:
            unknown = site == LARGE
            assert (rows[site]["own_accuracy"] is None) == unknown
            assert (rows[site]["local_accuracy"] is None) == unknown
            assert rows[site]["central_accuracy"] is not None
            assert rows[site]["images"] == len(held[site][1])
        assert (rows[LARGE]["accuracy"] is None) == (recipe == "local-only")
    whole = {row["recipe"]: row for row in accord.load(run).rows if row["site_mean"] is not None}
    local = rows_at(run, "local-only", "client-mean")
    nets = [local[site]["accuracy"] for site in CLINICS if site != LARGE]
    assert whole["local-only"]["site_spread"] == pytest.approx(np.std(nets))


def test_the_own_net_of_a_site_is_the_same_whoever_is_left_out(
    made: tuple[Path, Arrays], tmp_path: Path
) -> None:
    """So a site that is left out can be compared with its own net of another trial."""
    study = study_of(made[0].parent / "clinics.npz", recipes=["local-only"])
    study["budget"] = {"epochs": 1, "batch": 32}
    study["partition"] |= {"leave_out": [LARGE, OTHER]}
    rows = accord.run(study, out=tmp_path / "run", workers=1, quiet=True).sites()
    found = {(row["partition.leave_out"], row["site"]): row for row in rows}
    kept = [key for key in found[LARGE, SINGLE] if key not in ("partition.leave_out", "trial")]
    assert [found[LARGE, SINGLE][k] for k in kept] == [found[OTHER, SINGLE][k] for k in kept]
    for gone, other in ((LARGE, OTHER), (OTHER, LARGE)):
        assert found[gone, gone]["accuracy"] is None
        assert found[gone, gone]["local_accuracy"] == found[other, gone]["accuracy"] is not None
