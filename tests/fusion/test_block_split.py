"""Which blocks clients share, and with whom."""

from __future__ import annotations

import math

import pytest
import torch

from accord.fusion.split import Split, clusters, histograms, likeness
from fusion.support import client

ALIKE = [client([5, 5]), client([9, 9])]
APART = [client([5, 0]), client([0, 7])]


def test_likeness_is_the_mean_cosine_of_two_clients() -> None:
    assert likeness(histograms(ALIKE)) == pytest.approx(1)
    assert likeness(histograms(APART)) == pytest.approx(0)
    mixed = [client([1, 0]), client([1, 1]), client([0, 1])]
    assert likeness(histograms(mixed)) == pytest.approx((2 / math.sqrt(2) + 0) / 3)
    assert likeness(histograms([client([3, 1])])) == 1


def test_the_more_alike_the_more_is_shared() -> None:
    assert Split().shared(ALIKE, 4) == [4, 4]
    assert Split().shared(APART, 4) == [0, 0]
    assert Split(decides="before").shared(ALIKE, 4) == [4, 4]
    assert Split(blocks=9).shared(APART, 4) == [4, 4]


def test_a_client_decides_by_the_entropy_of_its_own_labels() -> None:
    clients = [client([4, 4]), client([8, 0]), client([1, 9])]
    entropy = -(0.1 * math.log(0.1) + 0.9 * math.log(0.9)) / math.log(2)
    assert Split(decides="client").shared(clients, 4) == [4, 0, round(4 * entropy)]


def test_one_more_exchange_is_counted() -> None:
    assert Split().exchanges == 1
    assert Split(decides="before").exchanges == 2


def test_clusters_join_those_who_are_alike() -> None:
    p = histograms([client([9, 1]), client([1, 9]), client([8, 1]), client([5, 5])])
    assert clusters(p, None) == [0, 0, 0, 0]
    first, second, third, fourth = clusters(p, 0.95)
    assert first == third
    assert len({first, second, fourth}) == 3
    assert len(set(clusters(p, 0.7))) == 1  # the fourth joins both ends
    assert torch.equal(p.sum(dim=1), torch.ones(4, dtype=torch.float64))
