"""Details of a block: examples, nearest neighbours, and what the fusion is without each client."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from accord.core.metrics import Tally
from accord.core.parts import make_part
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.fusion import evaluate
from accord.fusion.base import Outputs, Summary, Vote, fusions
from accord.fusion.details import Details, examples_of, hits_without_each, neighbour_accuracy
from accord.fusion.evaluate import measure_block
from accord.fusion.uploads import UploadFiles
from fusion.clients import BRIEFING, HOLDINGS, TEST, images_of, upload_of, written

ALL = Details(examples=True, neighbours=True, leave_one_out=True)
VOTES = {name: {"use": name} for name in fusions.names() if issubclass(fusions.get(name), Vote)}


def said(*probabilities: tuple[float, float]) -> Outputs:
    """Outputs whose softmax are `probabilities`."""
    logits = torch.tensor(probabilities).log()
    return Outputs(features=logits, logits=logits)


class Clients(UploadFiles):
    """Three clients with 1, 1 and 3 images."""

    def summaries(self) -> list[Summary]:
        header = upload_of("0", images_of([0, 1, 2], "any")).header
        counts = torch.zeros(2, dtype=torch.int64)
        return [
            Summary(header.model_copy(update={"samples": n}), {"label_counts": counts})
            for n in (1, 1, 3)
        ]


def test_leaving_each_client_out_by_hand() -> None:
    outputs = [said((0.9, 0.1), (0.6, 0.4)), said((0.2, 0.8), (0.3, 0.7))]
    outputs.append(said((0.45, 0.55), (0.8, 0.2)))
    rule = make_part(fusions, {"use": "outputs"}, "fusion")
    assert isinstance(rule, Vote)
    # The probability of class 0 of both images, whose classes are 0 and 1:
    # without 0: ¼·0.2 + ¾·0.45 = 0.39 and ¼·0.3 + ¾·0.8 = 0.68; both are wrong.
    # without 1: ¼·0.9 + ¾·0.45 = 0.56 and ¼·0.6 + ¾·0.8 = 0.75; one is right.
    # without 2: ½·0.9 + ½·0.2 = 0.55 and ½·0.6 + ½·0.3 = 0.45; both are right.
    found = hits_without_each(rule, Clients([], BRIEFING), outputs, torch.tensor([0, 1]))
    assert found == [0, 1, 2]


def test_scores_that_are_not_finite_have_no_number() -> None:
    outputs = [said((0.9, 0.1)), said((0.2, 0.8)), said((torch.nan, 0.5))]
    rule = make_part(fusions, {"use": "outputs"}, "fusion")
    assert isinstance(rule, Vote)
    found = hits_without_each(rule, Clients([], BRIEFING), outputs, torch.tensor([0]))
    assert found == [None, None, 1]


def test_every_rule_without_a_client_is_the_rule_of_the_other_clients(tmp_path: Path) -> None:
    paths = written(tmp_path, HOLDINGS["skewed"])
    everybody = UploadFiles(paths, BRIEFING)
    found = measure_block(TEST, everybody, VOTES, {}, "cpu", lambda _: None, details=ALL)
    assert set(found["without"]) == set(VOTES)
    for left in range(len(paths)):
        others = UploadFiles([*paths[:left], *paths[left + 1 :]], BRIEFING)
        alone = measure_block(TEST, others, VOTES, {}, "cpu", lambda _: None)
        for name in VOTES:
            right = int(Tally.from_json(alone["fusions"][name]).confusion.trace())
            assert found["without"][name][left] == right, (name, left)
    assert len({tuple(hits) for hits in found["without"].values()}) > 1  # rules differ


def test_only_what_is_wanted_is_measured_and_nothing_else_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clients = UploadFiles(written(tmp_path, HOLDINGS["skewed"]), BRIEFING)
    votes = {"outputs": VOTES["outputs"]}
    plain = measure_block(TEST, clients, votes, {}, "cpu", lambda _: None)
    assert (plain["examples"], plain["neighbours"], plain["without"]) == ({}, [], {})
    found = measure_block(TEST, clients, votes, {}, "cpu", lambda _: None, details=ALL)
    assert len(found["neighbours"]) == len(clients)
    assert {len(found[key]["outputs"]) for key in ("examples", "without")} <= {3, 9}
    assert {key: found[key] for key in ("fusions", "clients", "personal", "sites")} == {
        key: plain[key] for key in ("fusions", "clients", "personal", "sites")
    }
    json.dumps(found)  # it travels between processes
    monkeypatch.setattr(evaluate, "MOST_CLIENTS", 2)
    many = measure_block(TEST, clients, votes, {}, "cpu", lambda _: None, details=ALL)
    one = UploadFiles(clients.paths[:1], BRIEFING)
    alone = measure_block(TEST, one, votes, {}, "cpu", lambda _: None, details=ALL)
    assert many["without"] == alone["without"] == {}


def shown(scores: list[list[float]], labels: list[int]) -> list[int]:
    """The positions of the examples, in order."""
    rows = 100 + np.arange(len(labels))
    images = ImageSet(np.zeros((200, 1, 1, 1), np.uint8), rows, np.array(labels))
    return [example["image"] - 100 for example in examples_of(torch.tensor(scores), images)]


def test_examples_by_hand() -> None:
    images = ImageSet(np.zeros((9, 1, 1, 1), np.uint8), np.array([7, 2, 5]), np.array([0, 1, 1]))
    found = examples_of(torch.tensor([[0.8, 0.2], [0.6, 0.4], [0.1, 0.9]]).log(), images)
    expected = [(2, 1, 0, 0.6), (7, 0, 0, 0.8), (5, 1, 1, 0.9)]
    assert [tuple(one.values()) for one in found] == [
        (*values, pytest.approx(confidence, abs=1e-6)) for *values, confidence in expected
    ]
    assert list(found[0]) == ["image", "label", "predicted", "confidence"]


def test_the_most_confident_mistakes_and_right_images_of_all_classes_are_shown() -> None:
    # Eight images of class 1 that are taken for 0, with growing confidence.
    assert shown([[0.1 * k, 0.0] for k in range(1, 9)], [1] * 8) == [7, 6, 5, 4, 3, 2]
    # Nine right images: the first of each class, and then the first of the others.
    labels = [0, 0, 1, 1, 0, 2, 1, 2, 0]
    assert shown(torch.eye(3)[labels].tolist(), labels) == [0, 2, 5, 1, 3, 4]
    # More classes than are shown: each class once.
    labels = [k // 2 for k in range(16)]
    assert shown(torch.eye(8)[labels].tolist(), labels) == [0, 2, 4, 6, 8, 10]


def test_nearest_neighbours_by_hand() -> None:
    # By angle: 0 and 1 are a pair; the nearest of 2 is 3, and of 3 it is 2. Lengths do not matter.
    features = torch.tensor([[1.0, 0.0], [9.0, 1.0], [0.0, 1.0], [1.0, 5.0]])
    for labels, expected in (([0, 0, 1, 1], 1.0), ([0, 0, 1, 0], 0.5), ([0, 1, 0, 1], 0.0)):
        assert neighbour_accuracy(features, torch.tensor(labels)) == expected
    assert neighbour_accuracy(features[:1], torch.tensor([0])) is None


def test_nearest_neighbours_agree_with_scikit_learn() -> None:
    from sklearn.neighbors import KNeighborsClassifier

    features = torch.randn(60, 5, generator=torch_generator(0, "neighbours"))
    labels = torch.randint(3, (60,), generator=torch_generator(1, "neighbours"))
    right = 0
    for k in range(60):
        kept = torch.arange(60) != k
        known = KNeighborsClassifier(1, metric="cosine").fit(features[kept], labels[kept])
        right += int(known.predict(features[k : k + 1])[0] == labels[k])
    assert neighbour_accuracy(features, labels) == pytest.approx(right / 60)
