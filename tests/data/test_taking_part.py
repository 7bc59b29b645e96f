"""What clients hold out, who is left out, and pooled clients: by hand and for any images."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.core.errors import AccordError
from accord.data.allocation import Allocation, PartName
from data.toy_sites import NAMES, PAIRS, Pairs, counted, dataset, dealt, pairs_of, sized

MEASURED: tuple[PartName, ...] = ("test", "own")
LEARNT: tuple[PartName, ...] = ("public", "validation")
IID = {"scheme": "iid", "clients": 3}
SCHEMES: list[dict[str, Any]] = [
    {},
    IID,
    {"scheme": "dirichlet", "clients": 3, "alpha": 0.3},
    {"scheme": "labels", "clients": 3, "labels": 3},
]
THREE = sized(a=(10, 5, 1), b=(4, 4, 4), c=(1, 1, 1))


def rows_of(made: Allocation) -> list[int]:
    """The images that all clients train on, sorted."""
    clients = (made.client(k).rows for k in range(len(made.partition.names)))
    return sorted(np.concatenate(list(clients)).tolist())


class TestOwn:
    def test_every_site_holds_out_its_share_of_each_class(self) -> None:
        # a: a quarter of 16 = 4: 2.5, 1.25, (0.25, the last image) → 3, 1, 0. b: 3 of 12.
        data = dataset(THREE, sized(a=(1,)))
        made = dealt(data, test_per_client=0.25)
        own = made.part("own")
        assert counted(pairs_of(data.train, own.rows)) == {
            ("a", 0): 3,
            ("a", 1): 1,
            ("b", 0): 1,
            ("b", 1): 1,
            ("b", 2): 1,
        }
        assert made.owners("own").tolist() == [0] * 4 + [1] * 3
        assert made.partition.label_counts.tolist() == [[7, 4, 1], [3, 3, 3], [1, 1, 1]]
        assert own.labels.tolist() == data.train.labels[own.rows].tolist()

    def test_the_same_images_for_every_seed_whatever_else_is_held_out(self) -> None:
        data = dataset(sized(a=(20, 20), b=(9, 12)))
        first = dealt(data, 0, test_per_client=0.3).part("own").rows.tolist()
        asked: list[dict[str, Any]] = [{}, {"public": 0.3, "validation": 0.2}]
        for seed, values in enumerate(asked, start=1):
            made = dealt(data, seed, test_per_client=0.3, **values)
            assert made.part("own").rows.tolist() == first

    def test_a_sites_images_do_not_depend_on_other_sites(self) -> None:
        """A site that joins later does not change what the others hold out."""
        few, more = sized(b=(20, 20)), sized(a=(9, 9), b=(20, 20))
        one = dealt(dataset([*few, *sized(c=(5, 5))], THREE), test_per_client=0.3)
        two = dealt(dataset(more, THREE), test_per_client=0.3)
        held = [made.partition.own[made.site_names.index("b")] for made in (one, two)]
        assert held[0].tolist() == (held[1] - 18).tolist()

    def test_equal_sites_do_not_hold_out_the_same_places(self) -> None:
        made = dealt(dataset(sized(a=(40, 40), b=(40, 40))), test_per_client=0.25)
        one, two = (np.array(part) - 80 * k for k, part in enumerate(made.partition.own))
        assert len(one) == len(two)
        assert one.tolist() != two.tolist()

    def test_drawn_clients_hold_out_by_the_seed_and_are_drawn_as_before(self) -> None:
        data = dataset(sized(a=(30, 30, 30)), sized(a=(1,)))
        plain = dealt(data, 4, IID)
        made = dealt(data, 4, IID, test_per_client=0.2)
        assert len({tuple(part) for part in made.partition.own}) == 3
        for k in range(3):
            both = np.concatenate([made.client(k).rows, made.partition.own[k]])
            assert sorted(both) == plain.client(k).rows.tolist()
            share = np.bincount(data.train.labels[made.partition.own[k]], minlength=3)
            whole = plain.partition.label_counts[k]
            assert (abs(share - 0.2 * whole) <= 1).all()
            assert share.sum() == 6
        other = dealt(data, 5, IID, test_per_client=0.2)
        assert made.part("own").rows.tolist() != other.part("own").rows.tolist()

    def test_refusals(self) -> None:
        data = dataset(sized(a=(30, 30)), sized(a=(1,)))
        for scheme in ("copies", "dirichlet-overlap"):
            asked = {"scheme": scheme, "clients": 2}
            with pytest.raises(AccordError, match=r"'data.test_per_client'.* share images"):
                dealt(data, 0, asked, test_per_client=0.2)
        with pytest.raises(AccordError, match=r"expected 0, because the clients hold their own"):
            dealt(data, 0, {"scheme": "sites", "names": ["x"]}, test_per_client=0.2)
        said = r"leaves client \d \d+ images to train on; expected at least 20 \(partition.min_s"
        with pytest.raises(AccordError, match=said):
            dealt(data, 0, {**IID, "min_samples": 20}, test_per_client=0.2)
        with pytest.raises(AccordError, match=r"'data.dealt': expected train.*found public"):
            dealt(data, 0, IID, test_per_client=0.2, public=0.4, dealt="public")


class TestLeaveOut:
    def test_a_site_takes_no_part_and_is_measured(self) -> None:
        data = dataset(THREE, sized(a=(2, 2), b=(2, 2), c=(1,)))
        values: dict[str, Any] = {"public": 0.2, "validation": 0.2, "test_per_client": 0.25}
        everybody, made = dealt(data, **values), dealt(data, 0, {"leave_out": "b"}, **values)
        assert made.site_names == everybody.site_names == ("a", "b", "c")
        assert made.partition.names == ("a", "c")
        for ours, theirs in ((0, 0), (1, 2)):
            assert made.client(ours).rows.tolist() == everybody.client(theirs).rows.tolist()
        for name in MEASURED:
            assert made.part(name).rows.tolist() == everybody.part(name).rows.tolist()
            assert made.owners(name).tolist() == everybody.owners(name).tolist()
        for name in LEARNT:
            kept = everybody.part(name).rows[everybody.owners(name) != 1]
            assert made.part(name).rows.tolist() == kept.tolist()
            assert (everybody.owners(name) == 1).any()

    def test_a_drawn_client_is_known_by_its_number(self) -> None:
        data = dataset(sized(a=(30, 30)), sized(a=(1,)))
        made = dealt(data, 0, {**IID, "leave_out": 1}, test_per_client=0.2)
        assert made.partition.names == ("0", "2")
        assert made.site_names == ("0", "1", "2")
        assert set(made.owners("own")) == {0, 1, 2}
        assert made.origins(1).tolist() == [2] * len(made.client(1))

    def test_held_out_images_may_come_from_the_column_alone(self) -> None:
        made = dealt(dataset(THREE, sized(a=(1,), b=(1,))), 0, {"leave_out": "b"})
        assert made.owners("test").tolist() == [0, 1]
        assert dealt(dataset(THREE), 0, {"leave_out": "b"}).partition.names == ("a", "c")

    def test_refusals(self) -> None:
        data, alone = dataset(THREE, sized(a=(1,), b=(1,))), dataset(sized(a=(9, 9)))
        with pytest.raises(AccordError, match=r"no client 'bb'; did you mean 'b'\? Clients: a, b"):
            dealt(data, 0, {"leave_out": "bb"})
        with pytest.raises(AccordError, match=r"held-out images of client 'c'.*found none\. Set d"):
            dealt(data, 0, {"leave_out": "c"})
        with pytest.raises(AccordError, match="held-out images of client '1'"):
            dealt(data, 0, {**IID, "leave_out": 1})
        with pytest.raises(AccordError, match="'a' is the only client"):
            dealt(alone, 0, {"leave_out": "a"})
        for scheme in ({"scheme": "copies"}, {"scheme": "sites", "names": ["x"]}):
            with pytest.raises(AccordError, match=f"scheme '{scheme['scheme']}' is not one of th"):
                dealt(data, 0, {**scheme, "leave_out": "x"})


@settings(max_examples=60, deadline=None)
@given(
    train=PAIRS,
    scheme=st.sampled_from(SCHEMES),
    fractions=st.tuples(*[st.sampled_from([0.0, 0.2, 0.5])] * 3),
    leave_out=st.booleans(),
    copies=st.integers(1, 2),
    on=st.sampled_from(["train", "public", "all"]),
    seed=st.integers(0, 20),
)
def test_pooled_clients_hold_exactly_the_images_of_all_clients(
    train: Pairs,
    scheme: dict[str, Any],
    fractions: tuple[float, float, float],
    leave_out: bool,
    copies: int,
    on: str,
    seed: int,
) -> None:
    data = dataset(train)
    public, validation, own = fractions
    values: dict[str, Any] = {"public": public, "validation": validation, "test_per_client": own}
    asked = {**scheme, "leave_out": train[0][0] if scheme == {} else "1"} if leave_out else scheme
    try:
        base = dealt(data, seed, asked, **values)
        made = dealt(data, seed, {**asked, "pooled": copies}, **values, dealt=on)
    except AccordError:  # too few images for these fractions or this scheme
        return
    shared = sorted(base.part("public").rows.tolist())
    wanted = {"train": rows_of(base), "public": shared, "all": sorted(rows_of(base) + shared)}
    assert made.partition.names == tuple(map(str, range(copies)))
    for client in range(copies):
        assert made.client(client).rows.tolist() == wanted[on]
        owner = {row: made.origins(client)[at] for at, row in enumerate(wanted[on])}
        if on != "public":
            for k in range(len(base.partition.names)):
                for row, site in zip(base.client(k).rows, base.origins(k), strict=True):
                    assert owner[row] == site
    assert made.site_names == base.site_names
    for name in ("test", "validation", "public", "own"):
        assert made.part(name).rows.tolist() == base.part(name).rows.tolist()
        assert made.owners(name).tolist() == base.owners(name).tolist()
    held = [*base.part("own").rows, *base.part("validation").rows, *base.part("test").rows]
    assert not {*wanted[on]} & {*held}
    assert len(NAMES) == made.partition.label_counts.shape[1]
