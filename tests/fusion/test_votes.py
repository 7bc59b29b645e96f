"""Standardised, class-wise, noise-weighted and learnt votes, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from accord.core.parts import make_part
from accord.fusion import Outputs, Summary, fusions
from accord.fusion.base import Vote
from accord.fusion.learned import LearnedPrototypes
from accord.fusion.merging import merge_prototypes
from accord.messages import Briefing
from fusion.support import client
from tests_support import brief_for

BRIEFING = brief_for("fafi")


def seen(features: list[float]) -> Outputs:
    return Outputs(torch.tensor([features]), torch.zeros(1, 2))


def scores(
    name: str, clients: list[Summary], images: list[list[float]], briefing: Briefing, **params: Any
) -> list[float]:
    rule = make_part(fusions, {"use": name, **params}, "fusion")
    assert isinstance(rule, Vote)
    combiner = rule.combiner(clients, briefing)
    votes = [combiner.vote(k, seen(image)) for k, image in enumerate(images)]
    found: list[float] = combiner.decide(torch.stack(votes).sum(dim=0))[0].tolist()
    return found


# --- standardised ------------------------------------------------------------------------------


def test_standardised_brings_features_to_one_scale() -> None:
    # (3 − 1)/2 = 1 and (1 − 3)/0.5 = −4; of client 1 (0, 2). √n: 1 and 3 of 4.
    clients = [
        client([1, 0], feature_mean=[1.0, 3.0], feature_var=[4.0, 0.25]),
        client([4, 5], feature_mean=[0.0, 0.0], feature_var=[1.0, 1.0]),
    ]
    found = scores("standardised", clients, [[3.0, 1.0], [0.0, 2.0]], BRIEFING)
    x, y = 0.25 * 1 + 0.75 * 0, 0.25 * -4 + 0.75 * 2
    assert found == pytest.approx([x / math.hypot(x, y), y / math.hypot(x, y)], abs=1e-6)


def test_a_feature_that_never_moves_stays_finite() -> None:
    clients = [client([1, 1], feature_mean=[1.0, 0.0], feature_var=[0.0, 1.0])]
    assert all(map(math.isfinite, scores("standardised", clients, [[1.0, 2.0]], BRIEFING)))


def test_standardised_weighs_by_square_roots_of_counts_unless_told() -> None:
    told = {"use": "standardised", "weights": "sqrt"}
    assert make_part(fusions, "standardised", "fusion") == make_part(fusions, told, "fusion")


def test_a_variance_counts_as_a_millionth_at_least() -> None:
    # (1.001 − 1)/0.001 = 1 where nothing varied, and 2/2 = 1 where something did.
    clients = [client([1, 1], feature_mean=[1.0, 0.0], feature_var=[0.0, 4.0])]
    found = scores("standardised", clients, [[1.001, 2.0]], BRIEFING)
    assert found == pytest.approx([0.5**0.5, 0.5**0.5], abs=1e-3)


def test_standardised_class_means_are_brought_to_the_same_scale() -> None:
    # Class 0 at (3, 1) is (1, −4) in spreads, class 1 at (5, 3.5) is (2, 1); the image is (1, 1).
    moments: dict[str, Any] = {"feature_mean": [1.0, 3.0], "feature_var": [4.0, 0.25]}
    means = torch.tensor([[3.0, 1.0], [5.0, 3.5]])
    clients = [client([1, 1], class_means=means, **moments)]
    found = scores("standardised", clients, [[3.0, 3.5]], BRIEFING, prototypes="means")
    unit = 2**-0.5
    first, second = (1 - 4) * unit / math.hypot(1, 4), (2 + 1) * unit / math.hypot(2, 1)
    assert found == pytest.approx([first, second], abs=1e-5)


def test_standardised_compares_with_prototypes_of_length_one() -> None:
    long = torch.tensor([[3.0, 0.0], [0.0, 7.0]])
    clients = [client([1, 1], long, feature_mean=[0.0, 0.0], feature_var=[1.0, 1.0])]
    found = scores("standardised", clients, [[3.0, 4.0]], BRIEFING)
    assert found == pytest.approx([0.6, 0.8], abs=1e-6)


# --- classwise -----------------------------------------------------------------------------------

MOMENTS: dict[str, Any] = {
    "score_mean": [0.2, 0.4],
    "score_std": [0.1, 0.2],
    "score_own": [0.8, 0.6],
    "score_rotated": [0.4, 0.2],
}


@pytest.mark.parametrize(
    ("centre", "expected"),
    [
        ("none", [0.6, 0.8]),
        ("mean", [(0.6 - 0.2) / 0.1, (0.8 - 0.4) / 0.2]),
        ("rotated", [(0.6 - 0.6) / 0.1, (0.8 - 0.4) / 0.2]),
    ],
)
def test_classwise_of_one_client(centre: str, expected: list[float]) -> None:
    found = scores("classwise", [client([3, 3], **MOMENTS)], [[3.0, 4.0]], BRIEFING, centre=centre)
    assert found == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("weights", "share"),
    [("sqrt", 1 / 4), ("count", 1 / 10), ("log", math.log(2) / (math.log(2) + math.log(10)))],
)
def test_a_client_speaks_on_a_class_to_the_extent_that_it_has_seen_it(
    weights: str, share: float
) -> None:
    # Class 0: 1 image against 9. Class 1: client 1's alone.
    clients = [client([1, 0], **MOMENTS), client([9, 4], **MOMENTS)]
    images = [[1.0, 0.0], [0.0, 1.0]]
    found = scores("classwise", clients, images, BRIEFING, centre="none", weights=weights)
    assert found == pytest.approx([share, 1.0], abs=1e-6)


def test_a_class_that_nobody_holds_is_never_predicted() -> None:
    found = scores("classwise", [client([5, 0], **MOMENTS)], [[0.0, 1.0]], BRIEFING)
    assert found[0] > found[1]
    assert F.softmax(torch.tensor(found), dim=0)[1] < 1e-6


def test_clients_with_one_class_each_are_told_apart() -> None:
    """Each scores all it has seen high; only what it measured tells its own class from others."""
    one: dict[str, Any] = {
        "score_mean": [0.9, 0.0],
        "score_std": [0.01, 0.0],
        "score_own": [0.9, 0.0],
    }
    two: dict[str, Any] = {
        "score_mean": [0.0, 0.3],
        "score_std": [0.0, 0.01],
        "score_own": [0.0, 0.3],
    }
    clients = [
        client([5, 0], **one, score_rotated=[0.7, 0.0]),
        client([0, 5], **two, score_rotated=[0.0, 0.1]),
    ]
    # An image of class 1: client 0 says 0.8 of class 0, client 1 says 0.29 of class 1.
    images = [[0.8, 0.6], [math.sqrt(1 - 0.29**2), 0.29]]
    raw = scores("classwise", clients, images, BRIEFING, centre="none")
    assert raw[0] > raw[1]
    found = scores("classwise", clients, images, BRIEFING, centre="rotated")
    assert found[1] > found[0]


def test_classwise_looks_at_directions_whatever_the_length_of_prototypes() -> None:
    long = torch.tensor([[3.0, 0.0], [0.0, 7.0]])
    found = scores("classwise", [client([3, 3], long, **MOMENTS)], [[3.0, 4.0]], BRIEFING)
    assert found == pytest.approx([(0.6 - 0.2) / 0.1, (0.8 - 0.4) / 0.2], abs=1e-5)


def test_classwise_measures_from_the_mean_by_square_roots_unless_told() -> None:
    told = {"use": "classwise", "weights": "sqrt", "centre": "mean"}
    assert make_part(fusions, "classwise", "fusion") == make_part(fusions, told, "fusion")


def test_a_spread_counts_as_a_hundredth_at_least() -> None:
    # (0.6 − 0.2)/0.01 where nothing varied, (0.8 − 0.4)/0.02 where something did.
    moments = {**MOMENTS, "score_std": [0.0, 0.02]}
    found = scores("classwise", [client([3, 3], **moments)], [[3.0, 4.0]], BRIEFING)
    assert found == pytest.approx([40, 20], rel=1e-4)


def test_the_score_of_a_class_that_nobody_holds_is_told() -> None:
    found = scores("classwise", [client([5, 0], **MOMENTS)], [[-1.0, 0.0]], BRIEFING)
    assert found == pytest.approx([(-1 - 0.2) / 0.1, -30], abs=1e-4)


# --- noise ---------------------------------------------------------------------------------------


def test_noise_weighs_each_image_of_each_client() -> None:
    # Client 0 sees the image as it sees noise (cosine 1) and has no say; client 1 at cosine 0.
    clients = [
        client([5, 5], noise_feature=[2.0, 0.0]),
        client([5, 5], noise_feature=[3.0, 0.0]),
    ]
    found = scores("noise", clients, [[4.0, 0.0], [0.0, 1.0]], BRIEFING)
    assert found == pytest.approx([0.0, 1.0], abs=1e-6)
    plain = scores("features", clients, [[4.0, 0.0], [0.0, 1.0]], BRIEFING)
    assert plain[0] > plain[1]  # so the weights do not cancel


def test_noise_weighs_by_count_as_well() -> None:
    # Cosines with noise: 0.6 at client 0 (1 image), −1 at client 1 (3 images).
    clients = [client([1, 0], noise_feature=[1.0, 0.0]), client([3, 0], noise_feature=[0.0, -2.0])]
    found = scores("noise", clients, [[3.0, 4.0], [0.0, 1.0]], BRIEFING)
    x, y = 0.25 * 0.4 * 3, 0.25 * 0.4 * 4 + 0.75 * 2 * 1
    assert found == pytest.approx([x / math.hypot(x, y), y / math.hypot(x, y)], abs=1e-6)


# --- prototypes ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("merging", "share"),
    [("mean", 1 / 2), ("count", 3 / 4), ("reliability", 3 * 0.5 / (3 * 0.5 + 1 * 1.0))],
)
def test_prototypes_are_merged_by_weights(merging: Any, share: float) -> None:
    clients = [client([3, 0], accuracy=0.5), client([1, 0], accuracy=1.0)]
    each = torch.stack([torch.full((2, 2), 1.0), torch.zeros(2, 2)])
    found = merge_prototypes(each, clients, "head", merging)
    assert found[0].tolist() == pytest.approx([share, share])
    assert found[1].tolist() == pytest.approx([0.5, 0.5])  # held by nobody: plain mean


def test_class_means_count_only_where_a_class_is_held() -> None:
    # A client uploads 0 for a class it has not; of three, two hold class 0 and one class 1.
    clients = [client([3, 0]), client([1, 0]), client([0, 5])]
    each = torch.tensor([[[4.0], [0.0]], [[8.0], [0.0]], [[0.0], [5.0]]])
    assert merge_prototypes(each, clients, "means", "mean").flatten().tolist() == [6.0, 5.0]
    assert merge_prototypes(each, clients, "means", "count").flatten().tolist() == [5.0, 5.0]


def test_confidence_weighs_by_how_far_a_class_stands_out() -> None:
    # (0.8 − 0.2)/0.1 = 6 spreads at client 0; at client 1 the class does not stand out at all.
    clients = [client([1, 1], **MOMENTS), client([9, 1], **{**MOMENTS, "score_own": [0.1, 0.6]})]
    each = torch.stack([torch.ones(2, 2), torch.zeros(2, 2)])
    found = merge_prototypes(each, clients, "head", "confidence")
    assert found[0].tolist() == [1.0, 1.0]
    assert found[1].tolist() == pytest.approx([0.5, 0.5])


def test_confidence_takes_a_spread_for_a_hundredth_at_least() -> None:
    # (0.22 − 0.2)/0.01 = 2 spreads at client 0, whose scores never vary; 4 at client 1.
    still = {**MOMENTS, "score_std": [0.0, 0.2], "score_own": [0.22, 0.6]}
    other = {**MOMENTS, "score_own": [0.6, 0.6]}
    clients = [client([1, 1], **still), client([1, 1], **other)]
    each = torch.stack([torch.ones(2, 2), torch.zeros(2, 2)])
    found = merge_prototypes(each, clients, "head", "confidence")
    assert found[0].tolist() == pytest.approx([1 / 3, 1 / 3], rel=1e-5)


def test_a_client_that_tells_no_accuracy_is_not_relied_on() -> None:
    told = client([1, 1], accuracy=0.1)
    silent = Summary(told.header.model_copy(update={"train_accuracy": None}), told.tensors)
    each = torch.stack([torch.ones(2, 2), torch.zeros(2, 2)])
    found = merge_prototypes(each, [told, silent], "head", "reliability")
    assert found.tolist() == [[1, 1], [1, 1]]


# --- learned -------------------------------------------------------------------------------------


def test_learnt_prototypes_lower_their_loss() -> None:
    each = torch.randn(3, 4, 6, generator=torch.Generator().manual_seed(0))
    anchors = F.normalize(torch.randn(4, 6, generator=torch.Generator().manual_seed(1)), dim=1)

    def loss(merged: Tensor) -> float:
        own = torch.arange(4)
        fit = torch.stack([F.cross_entropy(P @ merged.T, own) for P in each]).sum()
        return float(fit + 0.1 * F.mse_loss(merged, anchors))

    start = each.mean(dim=0)
    found = LearnedPrototypes(epochs=50).learn(each, anchors)
    assert loss(found) < loss(start)
    first = LearnedPrototypes(epochs=1).learn(each, anchors)
    # Adam's first step has the length of its lr in every coordinate, against the gradient's sign.
    torch.testing.assert_close((first - start).abs(), torch.full((4, 6), 1e-3), rtol=1e-3, atol=0)


def test_learnt_prototypes_are_adams_on_the_stated_loss() -> None:
    """Three steps of Adam by its definition, the loss's gradient by central differences."""
    draws = torch.Generator().manual_seed(0)
    each = torch.randn(3, 4, 6, generator=draws).double()
    anchors = torch.randn(4, 6, generator=draws).double()

    def loss(merged: Tensor) -> float:
        fit = sum(-(P @ merged.T).log_softmax(dim=1).diagonal().mean() for P in each)
        return float(fit + 5 * (merged - anchors).square().mean())

    def slope(merged: Tensor) -> Tensor:
        found = torch.zeros(merged.numel()).double()
        for place in range(merged.numel()):
            step = torch.zeros(merged.numel()).double()
            step[place] = 1e-5
            up, down = (loss(merged + sign * step.reshape(merged.shape)) for sign in (1, -1))
            found[place] = (up - down) / 2e-5
        return found.reshape(merged.shape)

    G, first, second = each.mean(dim=0), torch.zeros(4, 6).double(), torch.zeros(4, 6).double()
    for step in (1, 2, 3):
        gradient = slope(G)
        first = 0.9 * first + 0.1 * gradient
        second = 0.999 * second + 0.001 * gradient.square()
        unit = (first / (1 - 0.9**step)) / ((second / (1 - 0.999**step)).sqrt() + 1e-8)
        G = G - 0.1 * unit
    found = LearnedPrototypes(epochs=3, lr=0.1, pull=5.0).learn(each, anchors)
    torch.testing.assert_close(found, G, rtol=0, atol=1e-5)
    alone = LearnedPrototypes(epochs=3, lr=0.1, pull=5.0).learn(each, None)
    assert (alone - G).abs().max() > 0.01
