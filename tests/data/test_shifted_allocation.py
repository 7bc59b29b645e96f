"""What clients, pooled clients and the parts that are measured see of a shifted study."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from accord.data.allocation import Allocation, allocate, open_allocation
from accord.data.allocation_keys import allocation_key
from accord.data.datasets import load
from accord.data.images import Bytes
from accord.data.imageset import ImageSet
from accord.data.schemes import make_scheme
from accord.data.settings import NO_SHIFT, DataConfig, ShiftConfig
from accord.data.shifted import shifts_of
from accord.data.shifts import Holder

DATA = DataConfig(name="digits", validation=0.1, public=0.1, test_per_client=0.2, test_limit=60)
SHIFT = ShiftConfig(rotation=30, blur=0.5, colour=0.4, noise=0.1, labels=0.25)
SEED, CLIENTS = 3, 4
DIRICHLET: dict[str, Any] = {"alpha": 0.5, "clients": CLIENTS}


def made(
    shift: ShiftConfig = SHIFT,
    pooled: int = 0,
    data: DataConfig = DATA,
    scheme: dict[str, Any] = DIRICHLET,
) -> Allocation:
    chosen = make_scheme(scheme).model_copy(update={"pooled": pooled})
    return allocate(load("digits", tell=print), data, chosen, SEED, shift)


def pixels(data: ImageSet) -> Bytes:
    return data.batch(torch.arange(len(data))).numpy()


def expected(allocation: Allocation, rows: NDArray[np.int64], site: int) -> Bytes:
    """The images at these rows, changed by hand as this site sees them."""
    images = np.asarray(allocation.dataset.train.images)[rows]
    for change in shifts_of(allocation.shift, Holder(SEED, site, CLIENTS)):
        images = change.apply(images, rows)
    return images


def test_clients_see_their_training_images_and_their_own_held_out_ones_alike() -> None:
    shifted, plain = made(), made(NO_SHIFT)
    assert shifted.partition.hash == plain.partition.hash
    owners = shifted.owners("own")
    for client in range(CLIENTS):
        rows = shifted.held(client)
        np.testing.assert_array_equal(rows, plain.client(client).rows)
        np.testing.assert_array_equal(
            pixels(shifted.client(client)), expected(shifted, rows, client)
        )
        own = shifted.rows("own")[owners == client]
        assert len(own) > 10
        found = pixels(shifted.part("own"))[owners == client]
        np.testing.assert_array_equal(found, expected(shifted, own, client))
        assert (found != np.asarray(shifted.dataset.train.images)[own]).any()
    np.testing.assert_array_equal(shifted.part("own").labels, plain.part("own").labels)
    assert shifted.part("own") is shifted.part("own")  # changed once, for all blocks


def test_the_images_of_the_server_stay_as_they_are() -> None:
    shifted, plain = made(), made(NO_SHIFT)
    names: tuple[Literal["test", "validation", "public"], ...] = ("test", "validation", "public")
    for name in names:
        np.testing.assert_array_equal(pixels(shifted.part(name)), pixels(plain.part(name)))
        np.testing.assert_array_equal(shifted.part(name).labels, plain.part(name).labels)


def test_a_client_counts_the_labels_that_it_knows() -> None:
    shifted, plain = made(), made(NO_SHIFT)
    for client in range(CLIENTS):
        data, true = shifted.client(client), plain.client(client).labels
        assert (data.labels != true).sum() == round(0.25 * len(true))
        counts = data.label_counts(10).tolist()
        assert shifted.partition.label_counts[client].tolist() == counts
        assert counts != plain.partition.label_counts[client].tolist()


def test_pooled_images_are_those_that_the_clients_see() -> None:
    """For disjoint clients, and for clients that share images: then each one's copy is there."""
    for data, scheme in (
        (DATA, DIRICHLET),
        (
            DATA.model_copy(update={"test_per_client": 0.0}),
            {"scheme": "dirichlet-overlap", "clients": CLIENTS},
        ),
    ):
        apart, together = made(data=data, scheme=scheme), made(pooled=1, data=data, scheme=scheme)
        whole = together.client(0)
        everything = pixels(whole)
        origins = together.origins(0)
        assert len(whole) == sum(len(apart.client(k)) for k in range(CLIENTS))
        for client in range(CLIENTS):
            np.testing.assert_array_equal(
                everything[origins == client], pixels(apart.client(client))
            )
            np.testing.assert_array_equal(
                whole.labels[origins == client], apart.client(client).labels
            )
        counts = apart.partition.label_counts.sum(axis=0)
        assert together.partition.label_counts[0].tolist() == counts.tolist()


def test_a_client_that_is_left_out_changes_nothing_for_the_others() -> None:
    everybody = made()
    others = made(scheme={**DIRICHLET, "leave_out": "1"})
    assert others.site_names == everybody.site_names
    for place, client in enumerate((0, 2, 3)):
        one, other = others.client(place), everybody.client(client)
        np.testing.assert_array_equal(pixels(one), pixels(other))
        np.testing.assert_array_equal(one.labels, other.labels)
    np.testing.assert_array_equal(pixels(others.part("own")), pixels(everybody.part("own")))


def test_a_worker_opens_the_same_images_and_labels(tmp_path: Path) -> None:
    first = made()
    first.save(tmp_path / "allocation.json")
    again = open_allocation(tmp_path / "allocation.json")
    assert again.shift == SHIFT
    for client in range(CLIENTS):
        np.testing.assert_array_equal(pixels(again.client(client)), pixels(first.client(client)))
        np.testing.assert_array_equal(again.client(client).labels, first.client(client).labels)
    np.testing.assert_array_equal(again.partition.label_counts, first.partition.label_counts)


def test_every_value_of_a_shift_gives_another_key() -> None:
    dataset, scheme = load("digits", tell=print), make_scheme(DIRICHLET)
    strengths = SHIFT.model_dump() | {"scale": 0.5, "labels_at": 0.5}
    shifts = [NO_SHIFT, *(ShiftConfig(**{key: value}) for key, value in strengths.items())]
    keys = {allocation_key(dataset, DATA, scheme, 0, shift) for shift in shifts}
    assert len(keys) == len(shifts)
