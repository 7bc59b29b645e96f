"""An allocation: the same images for every process that opens it, and never another partition."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from accord.data import partition as partitions
from accord.data.allocation import Allocation, allocate, open_allocation
from accord.data.allocation_keys import allocation_key, public_key
from accord.data.datasets import load
from accord.data.images import Dataset, Images, Indices
from accord.data.schemes import Scheme, make_scheme
from accord.data.settings import DataConfig

DATA = DataConfig(name="digits", validation=0.2, public=0.1, classes=("3", "8", "1"), test_limit=60)


def allocation(seed: int = 0, data: DataConfig = DATA) -> Allocation:
    dataset = load("digits", tell=print)
    return allocate(dataset, data, make_scheme({"alpha": 0.5, "clients": 3}), seed)


def toy(labels: list[int], *, own_test: bool = False, rare: int = 0) -> Dataset:
    """Blank images; the column `site` says "a" or "b" in turns, and "rare" for the last few."""
    sites = np.array(["a", "b"] * len(labels))[: len(labels)].astype("<U4")
    sites[len(labels) - rare :] = "rare"
    blank = np.zeros((len(labels), 2, 2, 1), dtype=np.uint8)
    train = Images(blank, np.array(labels, dtype=np.int64), {"site": sites})
    test = Images(blank[:5], np.arange(5)) if own_test else None
    return Dataset("toy", tuple("abcde"), train, test, (0.5,), (0.5,), "none", Path("toy"))


SCHEMES = (
    make_scheme({"alpha": 0.1, "clients": 3}),
    make_scheme({"scheme": "dirichlet-overlap", "clients": 3}),
    make_scheme({"scheme": "labels", "labels": 2, "clients": 4}),
    make_scheme({"scheme": "iid", "clients": 2}),
    make_scheme({"scheme": "by-column", "column": "site"}),
)


def test_a_worker_opens_the_same_images(tmp_path: Path) -> None:
    made = allocation()
    made.save(tmp_path / "allocation.json")
    opened = open_allocation(tmp_path / "allocation.json")
    for index in range(3):
        one, two = made.client(index), opened.client(index)
        everything = torch.arange(len(one))
        assert torch.equal(one.batch(everything), two.batch(everything))
        assert (one.labels == two.labels).all()
    assert opened.classes == ("3", "8", "1")


def test_labels_follow_the_order_in_which_classes_are_asked_for() -> None:
    made = allocation()
    part = made.part("test")
    originals = np.asarray(made.dataset.train.labels)[part.rows]
    assert {(int(a), int(b)) for a, b in zip(originals, part.labels, strict=True)} == {
        (3, 0),
        (8, 1),
        (1, 2),
    }


def test_no_image_serves_two_purposes() -> None:
    made = allocation()
    parts = [made.client(index).rows for index in range(3)]
    parts += [made.part(name).rows for name in ("test", "validation", "public")]
    everything = np.concatenate(parts)
    assert len(everything) == len(set(everything.tolist()))


@settings(max_examples=100, deadline=None)
@given(
    labels=st.lists(st.integers(0, 4), min_size=40, max_size=120),
    own_test=st.booleans(),
    public=st.sampled_from([0.05, 0.1, 0.33, 0.6]),
    validation=st.sampled_from([0.0, 0.1, 0.5]),
    config=st.sampled_from(SCHEMES),
    seed=st.integers(0, 1000),
)
def test_no_image_is_both_public_and_a_clients_or_measured(
    labels: list[int],
    own_test: bool,
    public: float,
    validation: float,
    config: Scheme,
    seed: int,
) -> None:
    data = DataConfig(name="digits", public=public, validation=validation)
    try:
        made = allocate(toy(labels, own_test=own_test), data, config, seed)
    except AccordError:  # too few images for these fractions and this scheme
        return
    shared = set(made.part("public").rows.tolist())
    assert shared
    others: list[Indices] = [made.client(k).rows for k in range(len(made.partition.names))]
    others.append(made.part("validation").rows)
    if not own_test:  # else test rows point into another file
        others.append(made.part("test").rows)
    for rows in others:
        assert not shared & set(rows.tolist())
    # With so few clients every scheme allocations out all that is left: nothing is lost either.
    assert shared.union(*(rows.tolist() for rows in others)) == set(range(len(labels)))


def test_the_public_images_do_not_depend_on_how_the_rest_is_dealt_out() -> None:
    dataset, data = toy([k % 5 for k in range(100)]), DataConfig(name="digits", public=0.3)
    drawn = [config for config in SCHEMES if config.named_by is None]
    allocations = [allocate(dataset, data, config, 7) for config in drawn]
    assert len({allocation_key(dataset, data, config, 7) for config in SCHEMES}) == len(SCHEMES)
    assert len({made.part("public").rows.tobytes() for made in allocations}) == 1
    assert len({public_key(made) for made in allocations}) == 1
    other = allocate(dataset, data, SCHEMES[0], 8)
    assert public_key(other) != public_key(allocations[0])
    assert other.part("public").rows.tolist() != allocations[0].part("public").rows.tolist()


def test_all_images_are_those_of_clients_and_the_public_ones_but_never_the_others() -> None:
    dealt, every = allocation().split, allocation(data=DATA.model_copy(update={"dealt": "all"}))
    assert every.split.train.tolist() == sorted([*dealt.train, *dealt.public])
    assert every.split.validation.tolist() == dealt.validation.tolist()
    assert sum(len(every.client(k)) for k in range(3)) == len(dealt.train) + len(dealt.public)


def test_public_images_have_a_name_that_other_uses_of_the_data_do_not_change() -> None:
    dataset = toy([k % 5 for k in range(100)], own_test=True)

    def named(**changes: Any) -> str:
        data = DataConfig.model_validate({"name": "digits", "public": 0.3, **changes})
        return public_key(allocate(dataset, data, SCHEMES[0], 0))

    others = ({"validation": 0.2}, {"test_limit": 10}, {"path": "/elsewhere"})
    assert {named(**change) for change in others} == {named()}
    assert named(public=0.2) != named()
    assert named(augment="light") != named()


@pytest.mark.parametrize(("public", "validation"), [(0.6, 0.0), (0.0, 0.6), (0.4, 0.5)])
def test_a_natural_client_never_loses_its_last_image(public: float, validation: float) -> None:
    """Two images at that site, in two classes: splits by class alone took both in some seeds."""
    dataset, config = toy([k % 5 for k in range(100)], own_test=True, rare=2), SCHEMES[-1]
    data = DataConfig(name="digits", public=public, validation=validation)
    for seed in range(20):
        partition = allocate(dataset, data, config, seed).partition
        assert partition.names == ("a", "b", "rare")
        assert partition.label_counts[2].sum() == 2


def test_every_seed_is_measured_on_the_same_test_images() -> None:
    assert (allocation(0).part("test").rows == allocation(1).part("test").rows).all()
    assert allocation(0).partition.hash != allocation(1).partition.hash


def test_another_partition_in_its_place_is_refused(tmp_path: Path) -> None:
    """A silent change of partition between experiments is a trap of the reference code."""
    allocation(0).save(tmp_path / "allocation.json")
    partitions.save(allocation(1).partition, tmp_path / "allocation.safetensors")
    with pytest.raises(AccordError, match="another partition"):
        allocation(0).save(tmp_path / "allocation.json")


def test_the_key_names_everything_that_decides_who_gets_what() -> None:
    dataset, config = load("digits", tell=print), make_scheme({"alpha": 0.5, "clients": 3})
    base = allocation_key(dataset, DATA, config, 0)
    assert (
        allocation_key(dataset, DATA.model_copy(update={"path": "/elsewhere"}), config, 0) == base
    )
    others = {
        allocation_key(dataset, DATA, config, 1),
        allocation_key(dataset, DATA.model_copy(update={"validation": 0.3}), config, 0),
        allocation_key(dataset, DATA, make_scheme({"alpha": 0.1, "clients": 3}), 0),
    }
    assert len(others | {base}) == 4


def test_only_the_rows_of_a_batch_are_copied() -> None:
    client = allocation().client(0)
    assert isinstance(client.images, np.memmap)
    assert client.batch(torch.tensor([1, 0])).shape == (2, 8, 8, 1)
    assert len(client.slice(1, 3)) == 2
