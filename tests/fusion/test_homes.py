"""Tallies of each site's images: their sum, their size, and nets at home."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.metrics import Tally, measure
from accord.core.randomness import torch_generator
from accord.core.short_tally import ShortTally
from accord.fusion.evaluate import measure_block, run_net
from accord.fusion.homes import NO_SITES, Homes
from accord.fusion.uploads import UploadFiles
from fusion.clients import BRIEFING, CLASSES, HOLDINGS, TEST, written

# Nine test images, 0 1 2 0 1 2 0 1 2: site a has three, b five (none of class 0), c none.
OWNERS = np.array([0, 1, 1, 0, 1, 1, 0, 1, -1])
LABELS = torch.from_numpy(TEST.labels)


@settings(max_examples=50, deadline=None)
@given(
    owners=st.lists(st.integers(-1, 4), min_size=1, max_size=60),
    classes=st.integers(2, 7),
    seed=st.integers(0, 99),
)
def test_sites_add_up_to_the_images_that_have_an_owner(
    owners: list[int], classes: int, seed: int
) -> None:
    rng = torch_generator(seed, "homes")
    scores = 3 * torch.randn(len(owners), classes, generator=rng)
    labels = torch.randint(classes, (len(owners),), generator=rng)
    homes = Homes(("a", "b", "c", "d", "e"), np.array(owners))
    found = {
        name: ShortTally.from_json(json.loads(json.dumps(tally)))
        for name, tally in homes.tallies(scores, labels).items()
    }
    owned = torch.tensor(owners) >= 0
    assert {name: tally.count for name, tally in found.items()} == {
        name: owners.count(index) for index, name in enumerate("abcde") if index in owners
    }
    if not found:
        assert not owned.any()
        return
    total, whole = ShortTally.sum(found.values()), Tally.of(scores[owned], labels[owned], classes)
    assert torch.equal(total.hits, whole.confusion.diagonal())
    assert torch.equal(total.images, whole.confusion.sum(dim=1))
    torch.testing.assert_close(total.gaps, whole.gaps, rtol=0, atol=1e-9)
    assert total.loss == pytest.approx(whole.loss, rel=1e-9)
    assert total.figures().accuracy == whole.metrics().accuracy


def test_a_block_is_measured_at_each_site_and_each_net_at_home(tmp_path: Path) -> None:
    files = UploadFiles(written(tmp_path, HOLDINGS["skewed"]), BRIEFING)
    homes = Homes(("a", "b", "c"), OWNERS, clients=(1, 2, 0))
    votes = {"outputs": {"use": "outputs"}}
    found = measure_block(TEST, files, votes, {}, "cpu", lambda _: None, homes)
    whole = measure_block(TEST, files, votes, {}, "cpu", lambda _: None)
    assert whole.pop("sites") == {"fusions": {"outputs": {}}, "own": {}}
    sites = found.pop("sites")
    assert found == whole  # the other tallies do not depend on sites
    assert set(sites["fusions"]["outputs"]) == {"a", "b"}
    assert set(sites["own"]) == {"a", "b"}  # client 1 is at c, which has no images
    for site, index, client in (("a", 0, 2), ("b", 1, 0)):
        mine = torch.from_numpy(index == OWNERS)
        logits = run_net(files, client, TEST, "cpu").logits
        expected = measure(logits[mine], LABELS[mine], CLASSES)
        tally = ShortTally.from_json(sites["own"][site])
        assert tally.figures().accuracy == expected.accuracy
        assert tally.figures().ece == pytest.approx(expected.ece)
        assert tally.figures().worst_class == expected.worst_class


def test_nothing_is_measured_without_sites() -> None:
    scores = torch.zeros(9, CLASSES)
    assert NO_SITES.tallies(scores, LABELS) == {}
    assert NO_SITES.own(0, scores, LABELS) == {}
    nobody = Homes(("a",), np.full(9, -1), clients=(0,))
    assert nobody.tallies(scores, LABELS) == nobody.own(0, scores, LABELS) == {}
    pooled = Homes(("a",), np.zeros(9, np.int64), clients=())
    assert pooled.own(0, scores, LABELS) == {}  # the client of pooled images is no site


def test_the_answer_of_many_sites_and_classes_is_no_larger_than_a_confusion_matrix() -> None:
    classes, sites = 100, 50
    owners, labels = np.arange(500) % sites, torch.arange(500) % classes
    scores = torch.randn(500, classes, generator=torch_generator(0, "many"))
    homes = Homes(tuple(map(str, range(sites))), owners)
    found = len(json.dumps(homes.tallies(scores, labels)))
    assert found < 2 * len(json.dumps(Tally.of(scores, labels, classes).to_json()))
