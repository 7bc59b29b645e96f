from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Labels
from accord.data.partition import Partition, load, make_partition, save
from accord.data.schemes import make_scheme, schemes
from accord.data.schemes.dirichlet import Skewed
from accord.data.schemes.iid import Iid

Columns = dict[str, NDArray[np.str_]]


def config(**values: Any) -> Any:
    """The scheme; each has fields of its own."""
    return make_scheme(values)


def balanced(classes: int, each: int) -> Labels:
    return np.repeat(np.arange(classes), each)


def make(
    given: Labels, /, seed: int = 0, columns: Columns | None = None, **values: Any
) -> Partition:
    classes = int(given.max()) + 1 if len(given) else 1
    return make_partition(given, classes, config(**values), seed, columns or {})


def give_proportions(monkeypatch: pytest.MonkeyPatch, *rows: list[float]) -> None:
    """Let the classes' Dirichlet draws be these rows, again and again."""
    turn = itertools.cycle(rows)
    monkeypatch.setattr(Skewed, "proportions", lambda *_: np.array(next(turn)))


class TestConfig:
    def test_the_schemes(self) -> None:
        names = ["by-column", "copies", "dirichlet", "dirichlet-overlap", "iid", "labels"]
        assert schemes.names() == names

    def test_defaults_follow_the_scheme(self) -> None:
        assert (config().name, config().alpha, config().clients) == ("dirichlet", 0.5, 5)
        assert config(scheme="dirichlet-overlap", alpha=None).alpha == 0.5
        assert config(scheme="labels").labels == 2
        assert config(scheme="iid", alpha=None).skew is None

    @pytest.mark.parametrize(
        "values",
        [
            {},
            {"alpha": 0.05},
            {"scheme": "labels"},
            {"scheme": "iid", "clients": 3},
            {"scheme": "by-column", "column": "site"},
            {"scheme": "by-column", "column": "site", "clients": 2},
        ],
    )
    def test_a_written_config_reads_back_as_itself(self, values: dict[str, Any]) -> None:
        first = config(**values)
        again = config(**first.model_dump(mode="json"))
        assert again == first
        assert ("clients" in again.model_dump()) == ("clients" in first.model_dump())

    @pytest.mark.parametrize(
        ("values", "message"),
        [
            (
                {"scheme": "dirichlt"},
                "scheme 'dirichlt'; did you mean 'dirichlet'.*Known: by-column",
            ),
            ({"scheme": "xyz"}, "unknown partition scheme 'xyz'. Known: by-column"),
            ({"scheme": 3}, "'partition.scheme'"),
            ({"alpha": 0}, "'partition.alpha': expected greater than 0; found 0"),
            ({"alpha": -1}, "'partition.alpha'"),
            ({"alpha": float("nan")}, "'partition.alpha'"),
            ({"alpha": float("inf")}, "'partition.alpha'"),
            ({"clients": 0}, "'partition.clients'"),
            ({"clients": 2.5}, "'partition.clients'"),
            ({"min_samples": 0}, "'partition.min_samples'"),
            ({"scheme": "labels", "labels": 0}, "'partition.labels'"),
            ({"column": "site"}, "scheme 'dirichlet' has no 'column'; found 'site'"),
            ({"labels": 2}, "scheme 'dirichlet' has no 'labels'"),
            ({"scheme": "iid", "alpha": 0.5}, "scheme 'iid' has no 'alpha'"),
            ({"scheme": "by-column"}, "'partition.column' is missing"),
            ({"scheme": "by-column", "column": ""}, "'partition.column'"),
            ({"beta": 1}, "unknown key 'partition.beta'"),
        ],
    )
    def test_mistakes(self, values: dict[str, Any], message: str) -> None:
        with pytest.raises(AccordError, match=message):
            config(**values)


class TestByHand:
    def test_dirichlet_cuts_every_class_at_its_shares(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        give_proportions(monkeypatch, [0.5, 0.3, 0.2], [0.0, 0.04, 0.96])
        found = make(balanced(2, 10), clients=3)
        assert found.label_counts.tolist() == [[5, 0], [3, 0], [2, 10]]
        assert found.disjoint
        assert found.names == ("0", "1", "2")
        assert found.sources is None

    def test_overlap_deals_ten_times_and_stops_at_the_class(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        give_proportions(monkeypatch, [0.9, 0.06, 0.04], [0.02, 0.95, 0.03])
        found = make(np.array([0] * 10 + [1] * 20), scheme="dirichlet-overlap", clients=3)
        assert found.label_counts.tolist() == [[10, 4], [6, 20], [4, 6]]
        assert not found.disjoint

    def test_overlap_shuffles_anew_for_every_client(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_proportions(monkeypatch, [0.05, 0.05, 0.9])
        first, second, _ = make(balanced(1, 100), scheme="dirichlet-overlap", clients=3).indices
        assert len(first) == len(second) == 50
        assert 5 < len(np.intersect1d(first, second)) < 45

    def test_labels_share_a_class_evenly(self) -> None:
        found = make(balanced(3, 10), scheme="labels", clients=6, labels=1)
        assert sorted(found.label_counts.max(axis=1).tolist()) == [5] * 6
        assert found.label_counts.sum(axis=0).tolist() == [10, 10, 10]

    def test_labels_of_fewer_clients_than_classes_leave_classes_out(self) -> None:
        found = make(balanced(10, 4), scheme="labels", clients=2, labels=3)
        assert sorted(found.label_counts.sum(axis=0).tolist()) == [0] * 4 + [4] * 6
        assert found.label_counts.sum(axis=1).tolist() == [12, 12]

    def test_iid_is_equal_to_one_image(self) -> None:
        found = make(balanced(2, 7), scheme="iid", clients=4)
        assert [len(part) for part in found.indices] == [4, 4, 3, 3]

    def test_by_column_takes_the_values_in_sorted_order(self) -> None:
        sites = np.array(["york", "bath", "york", "ely", "bath", "york"])
        labels = np.array([0, 0, 1, 1, 1, 0])
        found = make(labels, columns={"site": sites}, scheme="by-column", column="site")
        assert [part.tolist() for part in found.indices] == [[1, 4], [3], [0, 2, 5]]
        assert found.sources == ("bath", "ely", "york")
        assert found.names == ("0", "1", "2")
        assert found.label_counts.tolist() == [[1, 1], [0, 1], [2, 1]]
        asked = make(labels, columns={"site": sites}, scheme="by-column", column="site", clients=3)
        assert asked.hash == found.hash

    def test_one_client_holds_everything(self) -> None:
        for scheme in ("dirichlet", "iid"):
            assert make(balanced(3, 4), scheme=scheme, clients=1).indices[0].tolist() == [
                *range(12)
            ]


cases = st.fixed_dictionaries(
    {
        "n": st.integers(1, 120),
        "classes": st.integers(1, 12),
        "clients": st.integers(1, 8),
        "seed": st.integers(0, 1000),
    }
)


def draw_labels(n: int, classes: int, seed: int) -> Labels:
    return numpy_generator(seed, "test labels").integers(0, classes, n)


def check_common(found: Partition, labels: Labels, min_samples: int) -> None:
    assert found.label_counts.dtype == np.int64
    assert all(part.dtype == np.int64 for part in found.indices)
    assert all(np.all(np.diff(part) > 0) for part in found.indices)  # sorted, nothing twice
    assert min(len(part) for part in found.indices) >= min_samples
    counts = [np.bincount(labels[part], minlength=12) for part in found.indices]
    np.testing.assert_array_equal(found.label_counts, counts)


@settings(max_examples=150, deadline=None)
@given(
    case=cases,
    scheme=st.sampled_from(["dirichlet", "dirichlet-overlap", "labels", "iid"]),
    alpha=st.sampled_from([1e-300, 0.01, 0.05, 0.5, 5.0, 1e300]),
    min_samples=st.integers(1, 4),
)
def test_every_partition_is_exact(
    case: dict[str, int], scheme: str, alpha: float, min_samples: int
) -> None:
    labels = draw_labels(case["n"], case["classes"], case["seed"])
    own = {"alpha": alpha} if scheme.startswith("dirichlet") else {}
    asked = config(scheme=scheme, clients=case["clients"], min_samples=min_samples, **own)
    try:
        found = make_partition(labels, 12, asked, case["seed"], {})
    except AccordError:  # tiny sets and extreme α may have no such partition
        assert scheme != "iid" or case["n"] < case["clients"] * min_samples
        return
    check_common(found, labels, min_samples)
    assert len(found.indices) == case["clients"]
    everything = np.concatenate(found.indices)
    present = len(np.unique(labels))
    if found.disjoint:
        assert len(np.unique(everything)) == len(everything)
    if scheme in ("dirichlet", "iid") or (scheme == "labels" and case["clients"] * 2 >= present):
        assert np.sort(everything).tolist() == list(range(case["n"]))
    assert make_partition(labels, 12, asked, case["seed"], {}).hash == found.hash


@settings(max_examples=50, deadline=None)
@given(case=cases, labels_each=st.integers(1, 4))
def test_labels_hold_at_most_m_and_cover_all_classes(
    case: dict[str, int], labels_each: int
) -> None:
    classes, clients = max(4, case["classes"]), case["clients"]
    labels = balanced(classes, 10)
    found = make(labels, case["seed"], scheme="labels", clients=clients, labels=labels_each)
    held = found.label_counts > 0
    assert set(held.sum(axis=1)) == {labels_each}
    assert held.any(axis=0).sum() == min(classes, clients * labels_each)
    for column in found.label_counts.T:  # even among the holders
        assert column.max() - column[column > 0].min(initial=10) <= 1


@settings(max_examples=50, deadline=None)
@given(case=cases)
def test_by_column_is_exact(case: dict[str, int]) -> None:
    labels = draw_labels(case["n"], case["classes"], case["seed"])
    sites = numpy_generator(case["seed"], "sites").integers(0, 20, case["n"]).astype(str)
    asked = config(scheme="by-column", column="site")
    found = make_partition(labels, 12, asked, case["seed"], {"site": sites})
    check_common(found, labels, 1)
    assert np.sort(np.concatenate(found.indices)).tolist() == list(range(case["n"]))
    assert found.sources == tuple(sorted(set(sites.tolist())))
    for part, source in zip(found.indices, found.sources, strict=True):
        assert set(sites[part]) == {source}


def proportions(alpha: float, clients: int, draws: int) -> NDArray[np.float64]:
    asked, rng = config(alpha=alpha, clients=clients), numpy_generator(0, "proportions", alpha)
    return np.stack([asked.proportions(rng) for _ in range(draws)])


@pytest.mark.parametrize("alpha", [0.05, 0.3, 1.0, 10.0])
def test_proportions_follow_the_dirichlet(alpha: float) -> None:
    """Each coordinate of Dir(α, …, α) over K is Beta(α, (K−1)α)."""
    clients = 5
    found = proportions(alpha, clients, 4000)
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found.mean(axis=0), 1 / clients, atol=0.03)
    expected = stats.dirichlet([alpha] * clients)
    np.testing.assert_allclose(found.var(axis=0), expected.var(), rtol=0.15)
    beta = stats.beta(alpha, (clients - 1) * alpha)
    assert stats.kstest(found[:, 2], beta.cdf).pvalue > 1e-3


@pytest.mark.parametrize("alpha", [5e-324, 1e-300, 1e-5, 1e5, 1e300, 1.7e308])
def test_proportions_stay_finite_at_any_alpha(alpha: float) -> None:
    found = proportions(alpha, 7, 50)
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(axis=1), 1)
    np.testing.assert_allclose(found.max(axis=1), 1 if alpha < 1 else 1 / 7, rtol=0.05)
    if alpha < 1:
        assert len(set(found.argmax(axis=1))) > 3  # any client may win, not the first


def test_dealt_shares_have_the_moments_of_the_dirichlet() -> None:
    labels, alpha, clients = balanced(4, 200), 0.5, 4
    shares = np.stack(
        [make(labels, seed, alpha=alpha, clients=clients).label_counts / 200 for seed in range(400)]
    )
    expected = stats.dirichlet([alpha] * clients)
    np.testing.assert_allclose(shares.mean(axis=(0, 2)), expected.mean(), atol=0.03)
    np.testing.assert_allclose(shares.var(axis=(0, 2)), expected.var(), rtol=0.15)


def test_a_smaller_alpha_means_fewer_labels_per_client() -> None:
    labels = balanced(10, 100)
    for scheme in ("dirichlet", "dirichlet-overlap"):
        entropies = []
        for alpha in (0.05, 0.3, 2.0, 100.0):
            counts = np.concatenate(
                [make(labels, s, scheme=scheme, alpha=alpha).label_counts for s in range(20)]
            )
            entropies.append(stats.entropy(counts, base=2, axis=1).mean())
        assert entropies == sorted(entropies)
        assert entropies[0] < 0.8 * entropies[-1]


class TestHash:
    def test_it_knows_the_partition_and_nothing_else(self) -> None:
        labels = balanced(4, 25)
        base = make(labels, alpha=0.5)
        assert make(labels, alpha=0.5, min_samples=2).hash == base.hash  # same draw
        assert make(labels, seed=1, alpha=0.5).hash != base.hash
        assert make(labels, alpha=0.6).hash != base.hash
        parts = base.indices
        renamed = Partition(parts, ("a",) * 5, ("x",) * 5, base.label_counts + 1, False)
        assert renamed.hash == base.hash

    def test_it_knows_who_holds_what(self) -> None:
        counts = np.zeros((2, 1), dtype=np.int64)

        def digest(*parts: list[int]) -> str:
            arrays = tuple(np.array(part, dtype=np.int64) for part in parts)
            return Partition(arrays, ("0", "1"), None, counts, True).hash

        found = {digest([0, 1], [2]), digest([0], [1, 2]), digest([2], [0, 1]), digest([0, 1, 2])}
        assert len(found) == 4


class TestErrors:
    def test_more_clients_than_images(self) -> None:
        for scheme in ("dirichlet", "dirichlet-overlap", "labels", "iid"):
            with pytest.raises(AccordError, match=r"3 images for 4 clients\. Use fewer clients"):
                make(np.array([0, 1, 2]), scheme=scheme, clients=4)

    def test_not_enough_images_for_min_samples(self) -> None:
        with pytest.raises(AccordError, match="at least 5 images for each of 4 clients, found 18"):
            make(balanced(2, 9), clients=4, min_samples=5)

    def test_no_images(self) -> None:
        nothing, columns = np.array([], dtype=np.int64), {"site": np.array([], dtype=str)}
        with pytest.raises(AccordError, match="found none"):
            make(nothing)
        with pytest.raises(AccordError, match="found none"):
            make(nothing, columns=columns, scheme="by-column", column="site")

    def test_a_draw_that_never_fits(self) -> None:
        message = (
            r"'dirichlet' with alpha 0.01: expected at least 9 images per client; of 40 images "
            r"over 4 clients in 1,000 draws the smallest client had at best \d\. "
            r"Use fewer clients, a larger alpha or a smaller min_samples"
        )
        with pytest.raises(AccordError, match=message):
            make(balanced(2, 20), alpha=0.01, clients=4, min_samples=9)

    def test_an_empty_client_is_never_handed_out(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_proportions(monkeypatch, [1.0, 0.0])
        for scheme in ("dirichlet", "dirichlet-overlap"):
            with pytest.raises(AccordError, match="at best 0"):
                make(balanced(2, 20), scheme=scheme, clients=2)

    def test_redraws_are_used_until_one_fits(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_proportions(monkeypatch, [1.0, 0.0], [0.9, 0.1], [0.5, 0.5])
        found = make(balanced(1, 20), clients=2, min_samples=10)
        assert found.label_counts.tolist() == [[10], [10]]

    def test_too_many_labels_per_client(self) -> None:
        with pytest.raises(AccordError, match=r"at most 3 labels per client.*found 4"):
            make(balanced(3, 10), scheme="labels", labels=4)

    def test_columns(self) -> None:
        labels, columns = np.array([0, 1, 0]), {"site": np.array(["a", "b", "a"])}
        with pytest.raises(AccordError, match="no column 'sites'; did you mean 'site'"):
            make(labels, columns=columns, scheme="by-column", column="sites")
        with pytest.raises(AccordError, match="Columns found: none"):
            make(labels, scheme="by-column", column="site")
        with pytest.raises(AccordError, match=r"2 distinct values .* found clients 5"):
            make(labels, columns=columns, scheme="by-column", column="site", clients=5)
        with pytest.raises(AccordError, match="over 2 clients the smallest client had at best 1"):
            make(labels, columns=columns, scheme="by-column", column="site", min_samples=2)

    @pytest.mark.parametrize(
        ("labels", "message"),
        [
            (np.array([0, 3]), "labels in 0…2, found labels in 0…3"),
            (np.array([-1, 0]), "labels in 0…2"),
            (np.array([[0, 1]]), "expected whole labels"),
            (np.array([0.0, 1.0]), "expected whole labels"),
        ],
    )
    def test_labels_that_cannot_be(self, labels: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            make_partition(labels, 3, config(), 0, {})

    def test_a_column_of_another_length(self) -> None:
        with pytest.raises(ValueError, match="'site' to have 3 values"):
            make(np.array([0, 1, 2]), columns={"site": np.array(["a"])}, clients=1)

    @pytest.mark.parametrize(
        ("drawn", "message"),
        [([[0, 1], [1, 2, 3]], "gave 1 images twice"), ([[0], [1, 2]], "lost 1 images")],
    )
    def test_a_scheme_that_breaks_its_promise(
        self, drawn: list[list[int]], message: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(Iid, "draw", lambda *_: [np.array(d) for d in drawn])
        with pytest.raises(RuntimeError, match=message):
            make(np.array([0, 0, 1, 1]), scheme="iid", clients=2)


class TestFile:
    def partition(self) -> Partition:
        columns = {"site": np.array(["bath", "ely", "bath", "york"])}
        return make(np.array([0, 1, 1, 0]), columns=columns, scheme="by-column", column="site")

    def test_saved_and_loaded_is_the_same(self, tmp_path: Path) -> None:
        for first in (self.partition(), make(balanced(3, 20), scheme="dirichlet-overlap")):
            path = tmp_path / "partition.safetensors"
            save(first, path)
            again = load(path)
            assert again.hash == first.hash
            assert (again.names, again.sources) == (first.names, first.sources)
            assert again.disjoint is first.disjoint
            np.testing.assert_array_equal(again.label_counts, first.label_counts)
            assert [path.name for path in tmp_path.iterdir()] == ["partition.safetensors"]

    def test_any_damaged_byte_is_noticed_or_harmless(self, tmp_path: Path) -> None:
        path, first = tmp_path / "partition.safetensors", self.partition()
        save(first, path)
        whole, noticed = path.read_bytes(), 0
        for place in range(len(whole)):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            try:
                again = load(path)
            except AccordError:
                noticed += 1
            else:  # for example a space that pads the header
                assert (again.hash, again.sources) == (first.hash, first.sources)
                np.testing.assert_array_equal(again.label_counts, first.label_counts)
        assert noticed > 0.9 * len(whole)

    def test_half_a_file_an_empty_one_and_none(self, tmp_path: Path) -> None:
        path = tmp_path / "partition.safetensors"
        with pytest.raises(AccordError, match="found no file"):
            load(path)
        save(self.partition(), path)
        for content in (path.read_bytes()[:-9], b"", b"not safetensors at all"):
            path.write_bytes(content)
            with pytest.raises(AccordError, match=f"{path.name}, found a damaged file"):
                load(path)
