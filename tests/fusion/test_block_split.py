"""Which blocks clients share, and with whom."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import Tensor

from accord.fusion.base import Scene
from accord.fusion.split import Split, clusters, histograms, likeness
from accord.fusion.uploads import UploadFiles
from accord.messages import NET, unprefixed
from fusion.clients import BRIEFING, KNOWN, written
from fusion.support import client

Net = dict[str, Tensor]
FIRST = "encoder.stages.stage1.0.weight"

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


# --- the nets it makes ---------------------------------------------------------------------------

# Over three classes: as mixed as can be (ℓ = 4 of 4), H = 0.51 of log 3 (ℓ = 2), and one class (0).
MIXED, SKEWED, SINGLE = [0, 1, 2], [0, 0, 0, 1], [1, 1]


def nets_of(rule: Split, holdings: list[list[int]], folder: Path) -> tuple[list[Net], list[Net]]:
    """The clients' nets, and those that a rule makes of them."""
    files = UploadFiles(written(folder, holdings), BRIEFING)
    before = [unprefixed(NET, files.load(k).tensors) for k in range(len(files))]
    made = rule.merge(Scene(files, BRIEFING, KNOWN))
    return before, [unprefixed(NET, upload.tensors) for upload in made]


def assert_blocks(found: Net, expected: dict[str, Net], otherwise: Net) -> None:
    """`expected`: stage → the net that its tensors are of."""
    for name, tensor in found.items():
        stage = name.removeprefix("encoder.stages.").partition(".")[0]
        source = expected.get(stage, otherwise) if name.startswith("encoder.") else otherwise
        torch.testing.assert_close(tensor, source[name], rtol=1e-5, atol=1e-6)


def mean_of(nets: list[Net], sizes: list[int]) -> Net:
    """Σ n_k W_k / Σ n_k; whole numbers are rounded."""
    found = {}
    for name, first in nets[0].items():
        total = sum(n * net[name].double() for net, n in zip(nets, sizes, strict=True))
        mean = torch.as_tensor(total) / sum(sizes)
        found[name] = (mean if first.is_floating_point() else mean.round()).to(first.dtype)
    return found


def test_a_block_is_averaged_over_the_clients_that_share_it(tmp_path: Path) -> None:
    before, after = nets_of(Split(decides="client"), [MIXED, SKEWED, SINGLE], tmp_path)
    both = mean_of(before[:2], [3, 4])
    early = {"stage1": both, "stage2": both}
    assert_blocks(after[0], early, before[0])  # of the last two blocks it is the only one
    assert_blocks(after[1], early, before[1])
    assert_blocks(after[2], {}, before[2])
    assert not torch.equal(both["encoder.stages.stage1.0.weight"], before[0][FIRST])


def test_clusters_average_among_themselves(tmp_path: Path) -> None:
    holdings = [[0, 0, 0, 1], [2, 2], [0, 0, 1]]  # the first and the last are alike
    rule = Split(blocks=1, cluster=0.8, weights="equal")
    before, after = nets_of(rule, holdings, tmp_path)
    both = mean_of([before[0], before[2]], [1, 1])
    assert_blocks(after[0], {"stage1": both}, before[0])
    assert_blocks(after[1], {}, before[1])
    assert_blocks(after[2], {"stage1": both}, before[2])


def test_alike_is_a_cosine_of_at_least_the_threshold() -> None:
    # (1, 0) and (3, 4)/7 have a cosine of 0.6.
    p = histograms([client([1, 0]), client([3, 4])])
    for threshold, number in ((0.59, 1), (0.61, 2)):
        assert len(set(clusters(p, threshold))) == number, threshold


def test_a_chain_of_clients_that_are_alike_is_one_cluster() -> None:
    # Neighbours are alike, the ends are not; the one in the middle comes last.
    ends = [client([9, 1, 0]), client([0, 1, 9]), client([9, 0, 5]), client([5, 0, 9])]
    assert len(set(clusters(histograms(ends), 0.8))) == 1
