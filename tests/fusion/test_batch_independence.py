"""What a model says of an image never depends on the images beside it, whatever the rule.

The way is a user's own: a federation trains, `accord fuse --save`, `Predictor.load`, `scores`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest
import torch
from torch import Tensor

import accord
from accord.core.metrics import Tally
from accord.core.randomness import numpy_generator
from accord.data.allocation import open_allocation
from accord.data.imageset import ImageSet
from accord.model.predictor import Predictor
from fusion.support import every_rule
from tests_support import digits

RULES = every_rule(distilled={"epochs": 1})
SAME = 1e-5  # absolute; scores are cosines, logits or log-probabilities, of size 0.3 to 6
BATCH = 96
ALONE = 2  # images, each asked about by itself
Scores = Callable[[ImageSet], Tensor]


def first_digits() -> ImageSet:
    """Images of one batch, classes mixed."""
    images, labels = digits()
    return ImageSet(images, np.arange(BATCH), labels[:BATCH])


IMAGES = first_digits()


class Difference(NamedTuple):
    """Between what is said of the same images, asked for in two ways."""

    score: float  # the largest
    labels: int  # how many


def difference(found: Tensor, expected: Tensor) -> Difference:
    assert found.shape == expected.shape
    labels = found.argmax(dim=1) != expected.argmax(dim=1)
    return Difference(float((found - expected).abs().max()), int(labels.sum()))


def differences(scores: Scores) -> dict[str, Difference]:
    """Of each other way to ask, from asking for a batch in one go."""
    expected = scores(IMAGES)
    mixed = numpy_generator(0, "order").permutation(BATCH)
    by_class = np.argsort(IMAGES.labels, kind="stable")
    stream = IMAGES.take(by_class)
    alone = [scores(IMAGES.slice(i, i + 1)) for i in range(ALONE)]
    in_turn = [scores(stream.slice(i, i + BATCH // 4)) for i in range(0, BATCH, BATCH // 4)]
    return {
        "alone": difference(torch.cat(alone), expected[:ALONE]),
        "in another order": difference(scores(IMAGES.take(mixed)), expected[mixed]),
        "sorted by class": difference(torch.cat(in_turn), expected[by_class]),
    }


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two clients with skewed labels, trained; the server has some images of its own."""
    study = {
        "name": "batches",
        "data": {"name": "digits", "train_limit": 150, "test_limit": 60, "public": 0.2},
        "partition": {"alpha": 0.3, "clients": 2},
        "net": {"backbone": "conv4"},
        "budget": {"epochs": 2, "batch": 32},
        "recipes": ["fafi"],
        "references": False,
    }
    path = tmp_path_factory.mktemp("batches") / "run"
    accord.run(study, out=path, workers=1, quiet=True)
    return path


@pytest.fixture(scope="module")
def server_images(run: Path) -> ImageSet:
    (path,) = run.glob("allocations/*.json")
    return open_allocation(path).part("test")


@pytest.mark.parametrize("label", RULES)
def test_scores_do_not_depend_on_the_batch(
    label: str, run: Path, server_images: ImageSet, tmp_path: Path
) -> None:
    results = accord.fuse(run, [RULES[label]], save=tmp_path / "model", workers=1, quiet=True)
    model = Predictor.load(tmp_path / "model")
    for way, found in differences(model.scores).items():
        assert found.labels == 0, way
        assert found.score <= SAME, way
    # The server measured the same, on images in another order.
    (row,) = (row for row in results.rows if row["fusion"] == label)
    by_class = server_images.take(np.argsort(-server_images.labels, kind="stable"))
    said = model.scores(by_class)
    measured = Tally.of(said, torch.from_numpy(by_class.labels), said.shape[1]).metrics()
    assert measured.accuracy == row["accuracy"]
    assert measured.loss == pytest.approx(row["loss"], abs=SAME)


def test_a_rule_that_looks_at_its_batch_would_be_found(run: Path, tmp_path: Path) -> None:
    accord.fuse(run, ["features"], save=tmp_path / "model", workers=1, quiet=True)
    model = Predictor.load(tmp_path / "model")

    def centred(images: ImageSet) -> Tensor:
        """FedSRA as it is often written: by the moments of the batch."""
        scores = model.scores(images)
        return scores - scores.mean(dim=0)

    found = differences(centred)
    assert found["alone"].score > 100 * SAME
    assert found["sorted by class"].score > 100 * SAME
    assert found["sorted by class"].labels > 0
