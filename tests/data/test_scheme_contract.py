"""What every registered partition scheme must do, whatever the images."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Labels
from accord.data.partition import Partition, load, make_partition, save
from accord.data.schemes import Counted, Pool, Scheme, make_scheme, schemes
from core.cases import looped

CLASSES = 12
SITES = np.array(["york", "bath", "ely", "hull"])
EVERY = schemes.names()
COUNTED = [name for name in EVERY if issubclass(schemes.get(name), Counted)]
HERE = [name for name in EVERY if not schemes.get(name).elsewhere]  # they distribute images
every_scheme = looped("name", HERE)

Columns = dict[str, NDArray[np.str_]]


def spec_of(name: str, **values: Any) -> dict[str, Any]:
    """The scheme as a user writes it: of `values` those that it knows, and a column to go by."""
    fields = schemes.get(name).model_fields
    return {
        "scheme": name,
        **{key: value for key, value in values.items() if key in fields},
        **({"column": "site"} if "column" in fields else {}),
    }


def scheme_of(name: str, clients: int = 3, **values: Any) -> Scheme:
    """With so many clients, where a scheme is told their number."""
    told = {"clients": clients} if name in COUNTED else {}
    return make_scheme(spec_of(name, **told, **values))


def images_of(count: int, classes: int, seed: int) -> tuple[Labels, Columns]:
    """Labels at random, and whose each image is."""
    draws = numpy_generator(seed, "contract")
    labels = draws.integers(0, classes, count)
    return labels, {"site": SITES[draws.integers(0, len(SITES), count)]}


def pool_of(labels: Labels, columns: Columns) -> Pool:
    present = [np.flatnonzero(labels == label) for label in np.unique(labels)]
    return Pool(len(labels), present, columns)


def dealt(scheme: Scheme, labels: Labels, columns: Columns, seed: int = 0) -> Partition:
    return make_partition(labels, CLASSES, scheme, seed, columns)


def kinds(base: type[Any]) -> set[type[Any]]:
    """All classes of schemes that can be made, wherever they stand."""
    further = {found for kind in base.__subclasses__() for found in kinds(kind)}
    return further if inspect.isabstract(base) else {base, *further}


def test_every_scheme_that_can_be_made_is_registered_under_its_name() -> None:
    assert {schemes.get(name) for name in EVERY} == kinds(Scheme)
    assert [schemes.get(name).name for name in EVERY] == EVERY


@settings(max_examples=120, deadline=None)
@given(
    name=st.sampled_from(HERE),
    count=st.integers(1, 120),
    classes=st.integers(1, CLASSES),
    clients=st.integers(1, 8),
    seed=st.integers(0, 1000),
    alpha=st.sampled_from([1e-300, 0.01, 0.05, 0.5, 5.0, 1e300]),
    sigma=st.sampled_from([0.0, 0.3, 1.0, 3.0, 100.0]),
    min_samples=st.integers(1, 4),
)
def test_every_partition_is_exact(
    name: str,
    count: int,
    classes: int,
    clients: int,
    seed: int,
    alpha: float,
    sigma: float,
    min_samples: int,
) -> None:
    labels, columns = images_of(count, classes, seed)
    scheme = scheme_of(name, clients, alpha=alpha, sigma=sigma, min_samples=min_samples)
    try:
        found = dealt(scheme, labels, columns, seed)
    except AccordError:  # tiny sets and extreme α may have no such partition
        if not scheme.varies:
            sites = np.unique(columns["site"], return_counts=True)[1]
            few = count < clients * min_samples if name in COUNTED else sites.min() < min_samples
            assert few
        return
    assert found.label_counts.dtype == np.int64
    assert all(part.dtype == np.int64 for part in found.indices)
    assert all(np.all(np.diff(part) > 0) for part in found.indices)  # sorted, nothing twice
    assert min(len(part) for part in found.indices) >= min_samples
    counts = [np.bincount(labels[part], minlength=CLASSES) for part in found.indices]
    np.testing.assert_array_equal(found.label_counts, counts)
    everything, pool = np.concatenate(found.indices), pool_of(labels, columns)
    expected = scheme.expected_clients
    assert expected is None or len(found.indices) == expected
    if scheme.disjoint:
        assert len(np.unique(everything)) == len(everything)
        if scheme.uses_all(pool):
            assert np.unique(everything).tolist() == list(range(count))
    assert dealt(scheme, labels, columns, seed).hash == found.hash


@every_scheme
def test_its_promises_are_those_it_keeps(name: str) -> None:
    """Disjoint or not, and whether another draw can change the clients' sizes."""
    labels, columns = images_of(300, 10, 0)
    scheme = scheme_of(name)
    found = [dealt(scheme, labels, columns, seed) for seed in range(8)]
    assert all(one.disjoint is scheme.disjoint for one in found)
    shared = [sum(map(len, one.indices)) > len(np.unique(np.hstack(one.indices))) for one in found]
    assert all(shared) is not scheme.disjoint
    sizes = {tuple(len(part) for part in one.indices) for one in found}
    assert (len(sizes) > 1) is scheme.varies


@every_scheme
def test_clients_are_named_by_the_column_or_by_their_number(name: str) -> None:
    labels, columns = images_of(60, 5, 0)
    scheme = scheme_of(name)
    found = dealt(scheme, labels, columns)
    if scheme.named_by is None:
        assert found.names == tuple(str(k) for k in range(len(found.indices)))
    else:
        assert found.names == tuple(sorted(set(columns[scheme.named_by].tolist())))
        for part, called in zip(found.indices, found.names, strict=True):
            assert set(columns[scheme.named_by][part]) == {called}


@every_scheme
def test_one_image_per_client_is_enough_unless_told(name: str) -> None:
    assert scheme_of(name).min_samples == 1


@every_scheme
def test_a_written_scheme_reads_back_as_itself(name: str) -> None:
    for first in (make_scheme(spec_of(name)), scheme_of(name, 4, alpha=0.05, min_samples=2)):
        again = make_scheme(first.model_dump(mode="json"))
        assert again == first
        assert again.model_dump() == first.model_dump()
        assert again.model_dump()["scheme"] == name


@every_scheme
def test_null_stands_for_a_default(name: str) -> None:
    fields = [key for key, f in schemes.get(name).model_fields.items() if not f.is_required()]
    nothing = dict.fromkeys(fields)
    assert make_scheme({**nothing, **spec_of(name)}) == make_scheme(spec_of(name))


@every_scheme
def test_a_saved_partition_is_loaded_as_it_was(name: str, tmp_path: Path) -> None:
    labels, columns = images_of(60, 5, 0)
    first = dealt(scheme_of(name), labels, columns)
    save(first, tmp_path / "partition.safetensors")
    again = load(tmp_path / "partition.safetensors")
    assert (again.hash, again.names) == (first.hash, first.names)
    assert again.disjoint is first.disjoint
    np.testing.assert_array_equal(again.label_counts, first.label_counts)


@looped("name", COUNTED)
def test_as_many_clients_as_images_are_allowed_and_no_more(name: str) -> None:
    labels = np.array([0, 1, 2])
    with pytest.raises(AccordError, match=r"3 images for 4 clients\. Use fewer clients"):
        dealt(scheme_of(name, clients=4), labels, {})
    if not schemes.get(name).varies:
        assert len(dealt(scheme_of(name, clients=3), labels, {}).indices) == 3


def test_which_images_of_a_class_a_client_gets_is_left_to_chance() -> None:
    """Neither the first ones in the file nor always the same; unless it gets them all."""
    labels, seeds, tried = np.zeros(400, dtype=np.int64), range(20), []
    for name in COUNTED:
        scheme = scheme_of(name, clients=40, alpha=1e6, sigma=0.0, labels=1)
        hands = [dealt(scheme, labels, {}, seed).indices for seed in seeds]
        for client in (0, 39):
            mine = [hand[client] for hand in hands]
            if len(mine[0]) == len(labels):
                continue
            tried.append(name)
            assert len({tuple(one) for one in mine}) == len(mine), (name, client)
            assert abs(np.concatenate(mine).mean() - 199.5) < 40, (name, client)
    assert len(set(tried)) > 2


def test_clients_that_share_images_may_need_more_of_them_together_than_there_are() -> None:
    labels, columns = images_of(40, 4, 0)
    for name in HERE:
        if not schemes.get(name).disjoint:
            scheme = scheme_of(name, clients=3, alpha=100.0, min_samples=20)
            assert sum(map(len, dealt(scheme, labels, columns).indices)) >= 60, name


@looped("name", COUNTED)
def test_a_lone_client_holds_every_image_that_is_used(name: str) -> None:
    labels, columns = images_of(40, 4, 0)
    scheme = scheme_of(name, clients=1)
    found = dealt(scheme, labels, columns)
    if scheme.uses_all(pool_of(labels, columns)):
        assert found.indices[0].tolist() == list(range(40))
    else:
        assert 0 < len(found.indices[0]) < 40


def test_no_images_are_refused_by_every_scheme() -> None:
    nothing = np.array([], dtype=np.int64)
    for name in HERE:
        with pytest.raises(AccordError, match="found none"):
            dealt(scheme_of(name), nothing, {"site": np.array([], dtype=str)})
