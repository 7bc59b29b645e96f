"""What a row of the results says, computed a second time from the uploads and the images."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from scipy.special import softmax
from sklearn.metrics import accuracy_score, balanced_accuracy_score, log_loss, recall_score
from torch import Tensor

import accord
from accord.data.allocation import Allocation, open_allocation
from accord.data.imageset import ImageSet
from accord.federation.measuring import blocks
from accord.messages import NET, Briefing, BriefingHeader, Upload, unprefixed
from accord.nets.net import loaded_net
from accord.record.folders import TrialFolder
from accord.record.record import Record

Floats = NDArray[np.float64]
Row = dict[str, Any]
Weights = dict[str, Tensor]

VOTE, MERGE, MEAN, BEST = "outputs", "average", "client-mean", "client-best"
ALONE = {"use": "split", "blocks": 0, "as": "alone"}  # shares nothing: every client keeps its net
BLOCK = 17  # images per job, so that every measure is put together from several blocks


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three clients on digits with validation images, measured in small blocks of images."""
    study = {
        "name": "measured",
        "data": {"name": "digits", "train_limit": 250, "test_limit": 80, "validation": 0.2},
        "partition": {"alpha": 0.5, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 3, "batch": 32},
        "recipes": ["ce-ensemble", "local-only"],  # both train alike, and so they train once
        "fusions": [MERGE, ALONE],
        "references": False,
    }
    path = tmp_path_factory.mktemp("measured") / "run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "BLOCK", BLOCK)
        accord.run(study, out=path, workers=1, quiet=True)
    return path


class Uploads:
    """The clients' nets of a finished run, and the images that they are measured on."""

    def __init__(self, run: Path) -> None:
        trial = Record(run).trials()[0]
        (path,) = (run / "allocations").glob("*.json")
        self.allocation: Allocation = open_allocation(path)
        self.header: BriefingHeader = Briefing.load(trial.briefing).header
        uploads = [Upload.load(file) for file in sorted(trial.path.glob("uploads/*"))]
        self.nets: list[Weights] = [unprefixed(NET, upload.tensors) for upload in uploads]
        self.sizes = np.array([upload.header.samples for upload in uploads])
        self.rows: dict[str, Row] = {row["fusion"]: row for row in accord.load(run).rows}

    def probabilities(self, net: Weights, images: ImageSet) -> Floats:
        """softmax of one net's logits, pixels scaled to 0…1 and standardised by hand."""
        header = self.header
        module = loaded_net(header.net, header.channels, len(header.classes), net).eval()
        pixels = torch.from_numpy(images.images[images.rows]).permute(0, 3, 1, 2) / 255
        shaped = [torch.tensor(values)[:, None, None] for values in (header.mean, header.std)]
        with torch.no_grad():
            logits = module((pixels - shaped[0]) / shaped[1])[1]
        found: Floats = softmax(logits.double().numpy(), axis=1)
        return found

    def voted(self, images: ImageSet) -> Floats:
        """Σ_k (n_k/n) softmax(logits_k)."""
        found: Floats = np.average(self.alone(images), axis=0, weights=self.sizes)
        return found

    def averaged(self, images: ImageSet) -> Floats:
        """softmax of the logits of the one net Σ_k (n_k/n) W_k."""
        shares = (self.sizes / self.sizes.sum()).tolist()
        mean = {
            name: sum(share * net[name] for share, net in zip(shares, self.nets, strict=True))
            for name in self.nets[0]
        }
        return self.probabilities({name: torch.as_tensor(t) for name, t in mean.items()}, images)

    def alone(self, images: ImageSet) -> list[Floats]:
        return [self.probabilities(net, images) for net in self.nets]


@pytest.fixture(scope="module")
def uploads(run: Path) -> Uploads:
    return Uploads(run)


def calibration_error(probabilities: Floats, labels: NDArray[np.int64]) -> float:
    """Of 15 equal bins of confidence, the mean gap between accuracy and confidence."""
    sure, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    found = 0.0
    for place in range(15):
        inside = (sure > place / 15) & (sure <= (place + 1) / 15)
        if inside.any():
            found += inside.mean() * abs(right[inside].mean() - sure[inside].mean())
    return found


def measures(probabilities: Floats, labels: NDArray[np.int64]) -> dict[str, float]:
    said = probabilities.argmax(axis=1)
    return {
        "accuracy": float(accuracy_score(labels, said)),
        "balanced_accuracy": float(balanced_accuracy_score(labels, said)),
        "worst_class": float(recall_score(labels, said, average=None).min()),
        "ece": calibration_error(probabilities, labels),
        "loss": float(log_loss(labels, probabilities, labels=range(10))),
    }


def accuracy(probabilities: Floats, images: ImageSet) -> float:
    return float((probabilities.argmax(axis=1) == images.labels).mean())


def assert_row(row: Row, expected: dict[str, float], validation: float) -> None:
    assert validation != pytest.approx(expected["accuracy"], abs=1e-3)  # one is not the other
    assert row["validation_accuracy"] == pytest.approx(validation, abs=1e-9)
    for name, value in expected.items():
        assert row[name] == pytest.approx(value, abs=1e-5), name


@pytest.mark.parametrize("fusion", [VOTE, MERGE])
def test_a_fusion_is_measured_on_the_test_and_on_the_validation_images(
    fusion: str, uploads: Uploads
) -> None:
    test, validation = (uploads.allocation.part(part) for part in ("test", "validation"))
    assert min(len(test), len(validation)) > 2 * BLOCK
    answer = uploads.voted if fusion == VOTE else uploads.averaged
    expected = measures(answer(test), test.labels)
    assert_row(uploads.rows[fusion], expected, accuracy(answer(validation), validation))


def test_client_mean_is_the_mean_over_the_clients_own_nets(uploads: Uploads) -> None:
    test, validation = (uploads.allocation.part(part) for part in ("test", "validation"))
    each = [measures(p, test.labels) for p in uploads.alone(test)]
    expected = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
    validated = float(np.mean([accuracy(p, validation) for p in uploads.alone(validation)]))
    assert_row(uploads.rows[MEAN], expected, validated)


def test_client_best_is_the_client_with_the_highest_test_accuracy(uploads: Uploads) -> None:
    test, validation = (uploads.allocation.part(part) for part in ("test", "validation"))
    each = [measures(p, test.labels) for p in uploads.alone(test)]
    best = int(np.argmax([one["accuracy"] for one in each]))
    validated = accuracy(uploads.alone(validation)[best], validation)
    assert_row(uploads.rows[BEST], each[best], validated)


def test_every_clients_own_accuracy_is_noted_by_its_name(run: Path, uploads: Uploads) -> None:
    trial = Record(run).trials()[0]
    (checkpoint,) = trial.measures()["checkpoints"]
    test = uploads.allocation.part("test")
    for k, (noted, p) in enumerate(zip(checkpoint["clients"], uploads.alone(test), strict=True)):
        own = uploads.allocation.client(k)
        assert noted["client"] == str(k)
        assert noted["test_accuracy"] == pytest.approx(accuracy(p, test), abs=1e-9)
        trained = accuracy(uploads.probabilities(uploads.nets[k], own), own)
        assert noted["train_accuracy"] == pytest.approx(trained, abs=1e-9)


@pytest.mark.parametrize("fusion", [MEAN, "alone"])
def test_personal_accuracy_weighs_recall_by_the_clients_own_labels(
    fusion: str, uploads: Uploads
) -> None:
    test, found = uploads.allocation.part("test"), []
    for k, p in enumerate(uploads.alone(test)):
        counts = np.bincount(uploads.allocation.client(k).labels, minlength=10)
        recall = recall_score(test.labels, p.argmax(axis=1), average=None)
        found.append(float(counts @ recall / counts.sum()))
    assert uploads.rows[fusion]["personal_accuracy"] == pytest.approx(np.mean(found), abs=1e-9)
    assert uploads.rows[VOTE]["personal_accuracy"] is None


# --- several rounds and checkpoints --------------------------------------------------------------


@pytest.fixture(scope="module")
def rounds(tmp_path_factory: pytest.TempPathFactory) -> TrialFolder:
    """FedAvg of two rounds, measured in each of them."""
    study = {
        "name": "rounds",
        "data": {"name": "digits", "train_limit": 150, "test_limit": 60, "validation": 0.2},
        "partition": {"alpha": 0.5, "clients": 3},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 2, "batch": 32, "checkpoints": [1, 2]},
        "rounds": {"count": 2},
        "recipes": ["fedavg"],
        "references": False,
    }
    path = tmp_path_factory.mktemp("rounds") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    (trial,) = Record(path).trials()
    return trial


def test_costs_add_up_over_rounds(rounds: TrialFolder) -> None:
    first, second = (json.loads(rounds.round(number).report.read_text()) for number in (1, 2))
    found = {at["epoch"]: at for at in rounds.measures()["checkpoints"]}
    assert [(at["round"], at["epoch"]) for at in found.values()] == [(1, 1), (1, 2), (2, 3), (2, 4)]
    for epoch, until in ((2, [first]), (4, [first, second])):
        for name in ("upload_bytes", "download_bytes", "seconds"):
            expected = sum(report[name] for report in until)
            assert found[epoch][name] == pytest.approx(expected), (epoch, name)
    for at in found.values():
        assert at["fusions"]["average"]["exchanges"] == at["round"]


def test_every_checkpoint_is_measured_by_itself(rounds: TrialFolder) -> None:
    losses = [at["fusions"]["average"]["loss"] for at in rounds.measures()["checkpoints"]]
    assert len(set(losses)) == 4
    for at in rounds.measures()["checkpoints"]:
        assert np.sum(at["fusions"]["average"]["confusion"]) == 60
