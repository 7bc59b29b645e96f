"""A deal: the same images for every process that opens it, and never another partition."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from accord.data import partition as partitions
from accord.data.datasets import load
from accord.data.deal import Deal, deal_key, make_deal, open_deal
from accord.data.partition import PartitionConfig
from accord.data.settings import DataConfig
from accord.errors import AccordError

DATA = DataConfig(name="digits", validation=0.2, public=0.1, classes=("3", "8", "1"), test_limit=60)


def deal(seed: int = 0, data: DataConfig = DATA) -> Deal:
    dataset = load("digits", tell=print)
    return make_deal(dataset, data, PartitionConfig(alpha=0.5, clients=3), seed)


def test_a_worker_opens_the_same_images(tmp_path: Path) -> None:
    made = deal()
    made.save(tmp_path / "deal.json")
    opened = open_deal(tmp_path / "deal.json")
    for index in range(3):
        one, two = made.client(index), opened.client(index)
        everything = torch.arange(len(one))
        assert torch.equal(one.batch(everything), two.batch(everything))
        assert (one.labels == two.labels).all()
    assert opened.classes == ("3", "8", "1")


def test_labels_follow_the_order_in_which_classes_are_asked_for() -> None:
    made = deal()
    part = made.part("test")
    originals = np.asarray(made.dataset.train.labels)[part.rows]
    assert {(int(a), int(b)) for a, b in zip(originals, part.labels, strict=True)} == {
        (3, 0),
        (8, 1),
        (1, 2),
    }


def test_no_image_serves_two_purposes() -> None:
    made = deal()
    parts = [made.client(index).rows for index in range(3)]
    parts += [made.part(name).rows for name in ("test", "validation", "public")]
    everything = np.concatenate(parts)
    assert len(everything) == len(set(everything.tolist()))


def test_every_seed_is_measured_on_the_same_test_images() -> None:
    assert (deal(0).part("test").rows == deal(1).part("test").rows).all()
    assert deal(0).partition.hash != deal(1).partition.hash


def test_another_partition_in_its_place_is_refused(tmp_path: Path) -> None:
    """A silent change of partition between experiments is a trap of the reference code."""
    deal(0).save(tmp_path / "deal.json")
    partitions.save(deal(1).partition, tmp_path / "deal.safetensors")
    with pytest.raises(AccordError, match="another partition"):
        deal(0).save(tmp_path / "deal.json")


def test_the_key_names_everything_that_decides_who_gets_what() -> None:
    dataset, config = load("digits", tell=print), PartitionConfig(alpha=0.5, clients=3)
    base = deal_key(dataset, DATA, config, 0)
    assert deal_key(dataset, DATA.model_copy(update={"path": "/elsewhere"}), config, 0) == base
    others = {
        deal_key(dataset, DATA, config, 1),
        deal_key(dataset, DATA.model_copy(update={"validation": 0.3}), config, 0),
        deal_key(dataset, DATA, PartitionConfig(alpha=0.1, clients=3), 0),
    }
    assert len(others | {base}) == 4


def test_only_the_rows_of_a_batch_are_copied() -> None:
    client = deal().client(0)
    assert isinstance(client.images, np.memmap)
    assert client.batch(torch.tensor([1, 0])).shape == (2, 8, 8, 1)
    assert len(client.slice(1, 3)) == 2
