"""Every fusion rule on numbers small enough to work out by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.metrics import Metrics
from accord.core.parts import make_part
from accord.fusion import Fusion, Outputs, Summary, fusions
from accord.fusion.base import Merge, ReferenceRule, Scene, Vote
from accord.messages import Upload, UploadHeader
from core.cases import looped
from held import Held
from tests_support import brief_for, images_of

EYE = [[1.0, 0.0], [0.0, 1.0]]
NO_IMAGES = images_of([])
BRIEFING = brief_for("fafi")  # most rules do not look at it


def rule(name: str, **params: Any) -> Fusion:
    return make_part(fusions, {"use": name, **params}, "fusion")


def header(samples: int) -> UploadHeader:
    return UploadHeader(
        client="0", epoch=3, samples=samples, train_accuracy=1.0, briefing="made up"
    )


def summary(
    counts: list[int],
    prototypes: list[list[float]],
    class_means: list[list[float]] | None = None,
) -> Summary:
    tensors = {
        "label_counts": torch.tensor(counts),
        "net.head.prototypes": torch.tensor(prototypes),
        "class_means": torch.tensor(class_means or prototypes),
    }
    return Summary(header(sum(counts)), tensors)


def scores(fusion: Fusion, clients: list[Summary], outputs: list[Outputs]) -> Tensor:
    assert isinstance(fusion, Vote)
    combiner = fusion.combiner(clients, BRIEFING)
    total = combiner.vote(0, outputs[0])
    for client in range(1, len(outputs)):
        total = total + combiner.vote(client, outputs[client])
    return combiner.decide(total)


def assert_scores(found: Tensor, *expected: list[float]) -> None:
    torch.testing.assert_close(found, torch.tensor(expected), rtol=0, atol=1e-6)


# --- features ----------------------------------------------------------------------------------

# One image: client 0 (1 sample) sees f = (2, 0), client 1 (9 samples) f = (0, 2).
SMALL_AND_LARGE = [summary([1, 0], EYE), summary([4, 5], [[3.0, 0.0], [0.0, 5.0]])]
SEEN = [
    Outputs(features=torch.tensor([[2.0, 0.0]]), logits=torch.zeros(1, 2)),
    Outputs(features=torch.tensor([[0.0, 2.0]]), logits=torch.zeros(1, 2)),
]


@pytest.mark.parametrize(
    ("weights", "direction"), [("count", (1, 9)), ("sqrt", (1, 3)), ("equal", (1, 1))]
)
def test_features_weighs_clients(weights: str, direction: tuple[int, int]) -> None:
    # P merges to ((2, 0), (0, 3)).
    x, y = direction
    length = math.hypot(x, y)
    found = scores(rule("features", weights=weights), SMALL_AND_LARGE, SEEN)
    assert_scores(found, [2 * x / length, 3 * y / length])


def test_features_weighs_by_count_and_merges_by_mean_unless_told() -> None:
    chosen = rule("features", weights="count", merge="mean")
    assert rule("features") == chosen


def test_features_sums_before_it_normalises() -> None:
    # Lengths matter: (3, 0) + (0, 1) points to (3, 1), not to the diagonal.
    clients = [summary([1, 1], EYE), summary([1, 1], EYE)]
    outputs = [
        Outputs(features=torch.tensor([[3.0, 0.0]]), logits=torch.zeros(1, 2)),
        Outputs(features=torch.tensor([[0.0, 1.0]]), logits=torch.zeros(1, 2)),
    ]
    assert_scores(scores(rule("features"), clients, outputs), [3 / 10**0.5, 1 / 10**0.5])


def test_features_merges_prototypes_by_count_per_class() -> None:
    # Class 0: 1 against 3 images. Class 1: client 1's alone. Class 2, held by nobody: plain mean.
    clients = [
        summary([1, 0, 0], [[1.0, 0.0], [7.0, 7.0], [2.0, 0.0]]),
        summary([3, 5, 0], [[5.0, 0.0], [0.0, 1.0], [0.0, 4.0]]),
    ]
    x, y = 0.6, 0.8
    outputs = [Outputs(torch.tensor([[x, y]]), torch.zeros(1, 3))] * 2
    found = scores(rule("features", merge="count"), clients, outputs)
    assert_scores(found, [4 * x, y, 1 * x + 2 * y])


def test_features_can_ask_for_the_nearest_class_mean_instead_of_the_heads() -> None:
    # Class 0: (1·(4, 0) + 3·(0, 4))/4 = (1, 3). Class 1: client 1's alone, whatever 0 uploads.
    clients = [
        summary([1, 0], EYE, class_means=[[4.0, 0.0], [9.0, 9.0]]),
        summary([3, 5], EYE, class_means=[[0.0, 4.0], [2.0, 0.0]]),
    ]
    x, y = 0.6, 0.8
    outputs = [Outputs(torch.tensor([[x, y]]), torch.zeros(1, 2))] * 2
    found = scores(rule("features", prototypes="means", merge="count"), clients, outputs)
    assert_scores(found, [(x + 3 * y) / 10**0.5, x])


# --- outputs -----------------------------------------------------------------------------------

# One image: client 0 (counts 1, 0) says (0.8, 0.2), client 1 (counts 4, 5) says (0.4, 0.6).
SAID = [
    Outputs(torch.zeros(1, 2), torch.tensor([[0.8, 0.2]]).log() + 3),
    Outputs(torch.zeros(1, 2), torch.tensor([[0.4, 0.6]]).log() - 5),
]


@pytest.mark.parametrize(
    ("weights", "first"),
    [
        ("count", 0.1 * 0.8 + 0.9 * 0.4),
        ("sqrt", 0.25 * 0.8 + 0.75 * 0.4),
        ("equal", 0.5 * 0.8 + 0.5 * 0.4),
    ],
)
def test_outputs_averages_probabilities(weights: str, first: float) -> None:
    found = scores(rule("outputs", weights=weights), SMALL_AND_LARGE, SAID)
    assert_scores(found.softmax(dim=1), [first, 1 - first])


def test_outputs_divides_by_the_smoothed_prior() -> None:
    # Priors with one more image of each class: (2, 1)/3 and (5, 6)/11.
    found = scores(rule("outputs", prior=True, weights="equal"), SMALL_AND_LARGE, SAID)
    small = (0.8 / 2) / (0.8 / 2 + 0.2 / 1)
    large = (0.4 / 5) / (0.4 / 5 + 0.6 / 6)
    first = (small + large) / 2
    assert_scores(found.softmax(dim=1), [first, 1 - first])


def test_outputs_weighs_by_count_without_prior_unless_told() -> None:
    assert rule("outputs") == rule("outputs", weights="count", prior=False)


def test_outputs_stays_finite_where_a_probability_underflows() -> None:
    clients = [summary([1, 1], EYE)]
    found = scores(
        rule("outputs"), clients, [Outputs(torch.zeros(1, 2), torch.tensor([[0.0, -1e4]]))]
    )
    assert bool(torch.isfinite(found).all())
    assert found.argmax().item() == 0


def test_outputs_tell_small_probabilities_as_they_are() -> None:
    said = [Outputs(torch.zeros(1, 2), torch.tensor([[0.0, -50.0]]))]
    assert_scores(scores(rule("outputs"), [summary([1, 1], EYE)], said), [0.0, -50.0])


# --- average -----------------------------------------------------------------------------------


def upload(counts: list[int], **net: Tensor) -> Upload:
    tensors = {f"net.encoder.{name}": tensor for name, tensor in net.items()}
    moments = {"label_counts": torch.tensor(counts), "feature_mean": torch.ones(2)}
    return Upload(header(sum(counts)), {**tensors, **moments})


def merged(uploads: Sequence[Upload], **params: Any) -> Upload:
    fusion = rule("average", **params)
    assert isinstance(fusion, Merge)
    (found,) = fusion.merge(Scene(Held(BRIEFING, uploads), BRIEFING, NO_IMAGES))
    return found


@looped(("weights", "share"), [("count", 0.9), ("sqrt", 0.75), ("equal", 0.5)])
@looped("name", ["weight", "running_mean", "running_var"])
def test_average_is_the_weighted_mean(name: str, weights: str, share: float) -> None:
    # Buffers of batch norm as well: not the first client's, nor the last one's.
    clients = [
        upload([1, 0], **{name: torch.tensor([10.0, 0.0])}),
        upload([4, 5], **{name: torch.tensor([20.0, 4.0])}),
    ]
    found = merged(clients, weights=weights).tensors[f"net.encoder.{name}"]
    expected = torch.tensor([10 + 10 * share, 4 * share])
    torch.testing.assert_close(found, expected, rtol=1e-6, atol=0)


@looped("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int64])
def test_average_keeps_types(dtype: torch.dtype) -> None:
    clients = [upload([1, 1], x=torch.tensor([4, 8]).to(dtype)) for _ in range(2)]
    found = merged(clients).tensors["net.encoder.x"]
    assert found.dtype == dtype
    assert torch.equal(found, torch.tensor([4, 8]).to(dtype))


def test_average_of_the_same_net_is_that_net() -> None:
    batches, weight = torch.tensor(997), torch.tensor([0.1, -3.7])
    for clients in range(1, 13):
        same = [upload([k + 1, k], num_batches_tracked=batches, w=weight) for k in range(clients)]
        found = merged(same).tensors
        assert found["net.encoder.num_batches_tracked"].item() == 997, clients
        torch.testing.assert_close(found["net.encoder.w"], weight, rtol=1e-6, atol=0)


def test_average_rounds_whole_numbers_and_does_not_cut_them_off() -> None:
    # 1/4 · 3 + 3/4 · 4 = 3.75, and 1/4 · 4 + 3/4 · 3 = 3.25.
    clients = [upload([1, 0], x=torch.tensor([3, 4])), upload([1, 2], x=torch.tensor([4, 3]))]
    assert merged(clients).tensors["net.encoder.x"].tolist() == [4, 3]


def test_average_weighs_by_count_without_recalibration_unless_told() -> None:
    assert rule("average") == rule("average", weights="count", recalibrate=False)


def test_average_speaks_for_all_images() -> None:
    found = merged([upload([1, 0]), upload([4, 5])])
    assert found.header.samples == 10
    assert found.header.client == "average"
    assert found.header.epoch == 3  # that of the uploads
    assert found.tensors["label_counts"].tolist() == [5, 5]


# --- references --------------------------------------------------------------------------------


def metrics(accuracy: float, confusion: tuple[tuple[int, ...], ...]) -> Metrics:
    return Metrics(accuracy, accuracy / 2, accuracy / 4, 1 - accuracy, 3 * accuracy, confusion)


CLIENTS = [
    metrics(0.25, ((1, 0), (3, 0))),
    metrics(0.75, ((0, 1), (0, 3))),
    metrics(0.5, ((1, 1), (1, 1))),
]


def summarised(name: str, clients: list[Metrics]) -> Metrics:
    fusion = rule(name)
    assert isinstance(fusion, ReferenceRule)
    return fusion.summarise(clients, [])[0]


def test_client_mean_is_the_mean_of_every_measure() -> None:
    assert summarised("client-mean", CLIENTS) == metrics(0.5, ((2, 2), (4, 4)))


def test_client_best_is_the_client_with_the_highest_accuracy() -> None:
    assert summarised("client-best", CLIENTS) == CLIENTS[1]


def test_client_best_looks_at_accuracy_first_and_then_at_the_lowest_loss() -> None:
    def of(accuracy: float, balanced: float, loss: float) -> Metrics:
        return Metrics(accuracy, balanced, 0.0, 0.0, loss, ((1, 0), (0, 1)))

    balanced, confused, clear = of(0.6, 0.9, 0.1), of(0.7, 0.5, 2.0), of(0.7, 0.4, 1.0)
    assert summarised("client-best", [balanced, confused, clear]) is clear
    assert summarised("client-best", [clear, confused, balanced]) is clear


def test_references_tell_the_validation_accuracy_of_the_same_clients() -> None:
    # The best on the test images is the second client, which is not the best in validation.
    validation = [metrics(accuracy, ((1, 0), (0, 1))) for accuracy in (0.9, 0.3, 0.6)]
    for name, expected in (("client-mean", 0.6), ("client-best", 0.3)):
        fusion = rule(name)
        assert isinstance(fusion, ReferenceRule)
        assert fusion.summarise(CLIENTS, validation)[1] == pytest.approx(expected), name
        assert fusion.summarise(CLIENTS, [])[1] is None, name


@pytest.mark.parametrize("name", ["client-mean", "client-best"])
def test_a_lone_client_is_its_own_reference(name: str) -> None:
    assert summarised(name, CLIENTS[:1]) == CLIENTS[0]


@pytest.mark.parametrize("name", ["features", "outputs", "average"])
def test_an_unknown_weighing_is_refused(name: str) -> None:
    with pytest.raises(AccordError, match=r"fusion\.weights.*'count', 'sqrt' or 'equal'"):
        rule(name, weights="log")
