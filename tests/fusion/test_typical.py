"""Votes weighed by how typical an image is of each client's own, worked out by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.core.parts import make_part
from accord.fusion import Outputs, Summary, fusions
from accord.fusion.base import Vote
from fusion.support import client
from tests_support import brief_for

BRIEFING = brief_for("fafi")


def holder(counts: list[int], mean: list[float], var: list[float], **scores: Any) -> Summary:
    moments = {"score_mean": [0.2, 0.4], "score_std": [0.1, 0.2], **scores}
    moments |= {"score_own": [0.8, 0.6], "score_rotated": [0.4, 0.2]}
    return client(counts, feature_mean=mean, feature_var=var, **moments)


def scores(name: str, clients: list[Summary], features: Tensor) -> Tensor:
    """(N, C) for features (K, N, d) that each client's net has of N images."""
    rule = make_part(fusions, name, "fusion")
    assert isinstance(rule, Vote)
    combiner = rule.combiner(clients, BRIEFING)
    votes = [combiner.vote(k, Outputs(f, torch.zeros(len(f), 2))) for k, f in enumerate(features)]
    return combiner.decide(torch.stack(votes).sum(dim=0))


def test_the_weight_falls_with_the_distance_from_the_clients_own_images() -> None:
    """Distances d = ((3 − 1)²/4 + (4 − 4)²/1)/2 = ½ and d = ((0 − 0)² + (5 − 1)²/2)/2 = 4."""
    clients = [
        holder([4, 4], mean=[1.0, 4.0], var=[4.0, 1.0]),
        holder([16, 4], mean=[0.0, 1.0], var=[1.0, 2.0]),
    ]
    features = torch.tensor([[[3.0, 4.0]], [[0.0, 5.0]]])
    power = (4 * 16 + 4 * 4) / math.hypot(4, 4) / math.hypot(16, 4)  # the cosine of the counts
    near, far = 1.5**-power, 5**-power
    # Cosines (0.6, 0.8) and (0, 1) are calibrated; √n: ⅓ and ⅔ of class 0, half of class 1 each.
    first = (0.6 - 0.2) / 0.1 / 3 * near + (0 - 0.2) / 0.1 * 2 / 3 * far
    second = ((0.8 - 0.4) / 0.2 * near + (1 - 0.4) / 0.2 * far) / 2
    total = (near + far) / 2
    found = scores("typical", clients, features)[0].tolist()
    assert found == pytest.approx([first / total, second / total], abs=1e-5)


@settings(max_examples=30, deadline=None)
@given(clients=st.integers(1, 5), seed=st.integers(0, 999))
def test_equally_typical_images_are_voted_on_as_by_classwise(clients: int, seed: int) -> None:
    draws = torch.Generator().manual_seed(seed)
    features = torch.randn(clients, 6, 2, generator=draws)
    # With a huge variance every image is typical of every client.
    held = torch.randint(1, 9, (clients, 2), generator=draws).tolist()
    alike = [holder(counts, [0.0, 0.0], [1e12, 1e12]) for counts in held]
    torch.testing.assert_close(
        scores("typical", alike, features), scores("classwise", alike, features)
    )


def test_a_client_that_never_saw_such_images_is_not_heard() -> None:
    """Alone it says class 1, but the image is a thousand standard deviations away."""
    clients = [
        holder([5, 5], mean=[1.0, 0.0], var=[1.0, 1.0]),
        holder([5, 5], mean=[0.0, -1000.0], var=[1.0, 1.0]),
    ]
    features = torch.tensor([[[1.0, 0.1]], [[-1.0, 0.2]]])
    alone = scores("classwise", clients[:1], features[:1])
    found = scores("typical", clients, features)
    torch.testing.assert_close(found, alone, rtol=1e-3, atol=1e-3)
    assert scores("classwise", clients, features).argmax() == 1
    assert found.argmax() == 0


def test_clients_without_a_common_label_vote_as_by_classwise() -> None:
    """Then an image is unlike a client's own because of its class, and not of its domain."""
    clients = [holder([5, 0], [1.0, 0.0], [1.0, 1.0]), holder([0, 5], [0.0, -9.0], [1.0, 2.0])]
    features = torch.tensor([[[1.0, 0.1]], [[-1.0, 0.2]]])
    torch.testing.assert_close(
        scores("typical", clients, features), scores("classwise", clients, features)
    )


def test_constant_features_and_classes_that_nobody_holds_stay_finite() -> None:
    clients = [holder([5, 0], mean=[0.0, 0.0], var=[0.0, 0.0]) for _ in range(2)]
    found = scores("typical", clients, torch.tensor([[[3.0, 4.0]], [[1e4, 0.0]]]))
    assert bool(found.isfinite().all())
    assert found.argmax() == 0
