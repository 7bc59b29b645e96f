from __future__ import annotations

import itertools
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
from accord.data.partition import Partition, make_partition
from accord.data.schemes import Pool, make_scheme
from accord.data.schemes.dirichlet import Skewed
from accord.data.schemes.iid import Iid
from core.cases import looped

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
    def test_defaults_follow_the_scheme(self) -> None:
        assert (config().name, config().alpha, config().clients) == ("dirichlet", 0.5, 5)
        assert config(scheme="dirichlet-overlap", alpha=None).alpha == 0.5
        assert config(scheme="labels").labels == 2
        assert config(scheme="iid", alpha=None).skew is None

    @looped(
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

    def test_dirichlet_rounds_where_it_cuts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_proportions(monkeypatch, [0.26, 0.37, 0.37])  # cuts at 2.6 and 6.3
        assert make(balanced(1, 10), clients=3).label_counts.tolist() == [[3], [3], [4]]

    def test_overlap_rounds_what_it_deals(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_proportions(monkeypatch, [0.066, 0.034, 0.9])  # 6.6 and 3.4 of 10 images
        found = make(balanced(1, 10), scheme="dirichlet-overlap", clients=3)
        assert found.label_counts.tolist() == [[7], [3], [10]]

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

    def test_which_labels_a_client_holds_is_left_to_chance(self) -> None:
        held = [
            tuple(np.flatnonzero(found.label_counts[0]))
            for found in (make(balanced(6, 4), s, scheme="labels", clients=3) for s in range(30))
        ]
        assert len(set(held)) > 5  # of 15 pairs
        assert len({label for pair in held for label in pair}) == 6

    def test_labels_use_all_images_as_soon_as_clients_hold_as_many_labels(self) -> None:
        pool = Pool(20, [np.arange(2 * c, 2 * c + 2) for c in range(10)], {})
        for clients, all_of_them in ((4, False), (5, True), (6, True)):
            assert config(scheme="labels", clients=clients).uses_all(pool) is all_of_them

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
        assert found.names == ("bath", "ely", "york")
        assert found.label_counts.tolist() == [[1, 1], [0, 1], [2, 1]]
        numbers = np.array(["10", "9", "2", "a10", "a9", "1"])
        found = make(labels, columns={"site": numbers}, scheme="by-column", column="site")
        assert found.names == ("1", "2", "9", "10", "a9", "a10")
        assert [part.tolist() for part in found.indices] == [[5], [2], [1], [0], [4], [3]]
        bad = np.array(["a", "b\ud800", "c", "d", "e", "f"])
        with pytest.raises(AccordError, match="UTF-8"):
            make(labels, columns={"site": bad}, scheme="by-column", column="site")
        found = make(labels, columns={"site": sites}, scheme="by-column", column="site")
        asked = make(labels, columns={"site": sites}, scheme="by-column", column="site", clients=3)
        assert asked.hash == found.hash


@settings(max_examples=50, deadline=None)
@given(
    classes=st.integers(4, 12),
    clients=st.integers(1, 8),
    seed=st.integers(0, 1000),
    labels_each=st.integers(1, 4),
)
def test_labels_hold_at_most_m_and_cover_all_classes(
    classes: int, clients: int, seed: int, labels_each: int
) -> None:
    labels = balanced(classes, 10)
    found = make(labels, seed, scheme="labels", clients=clients, labels=labels_each)
    held = found.label_counts > 0
    assert set(held.sum(axis=1)) == {labels_each}
    assert held.any(axis=0).sum() == min(classes, clients * labels_each)
    for column in found.label_counts.T:  # even among the holders
        assert column.max() - column[column > 0].min(initial=10) <= 1


def proportions(alpha: float, clients: int, draws: int) -> NDArray[np.float64]:
    asked, rng = config(alpha=alpha, clients=clients), numpy_generator(0, "proportions", alpha)
    return np.stack([asked.proportions(rng) for _ in range(draws)])


@looped("alpha", [0.05, 0.3, 1.0, 10.0])
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


@looped("alpha", [5e-324, 1e-300, 1e-5, 1e5, 1e300, 1.7e308])
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


class TestErrors:
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
            # min_samples is 1, so that a smaller one is no advice.
            with pytest.raises(AccordError, match=r"at best 0\. Use fewer .* alpha\.$"):
                make(balanced(2, 20), scheme=scheme, clients=2)

    def test_the_best_of_all_draws_is_told(self, monkeypatch: pytest.MonkeyPatch) -> None:
        give_proportions(monkeypatch, [0.9, 0.1], [1.0, 0.0])  # of 20 images 2, then none
        with pytest.raises(AccordError, match=r"in 1,000 draws the smallest client had at best 2"):
            make(balanced(1, 20), clients=2, min_samples=3)

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
        with pytest.raises(AccordError, match=r"2 distinct values .* found clients 1"):
            make(labels, columns=columns, scheme="by-column", column="site", clients=1)
        with pytest.raises(AccordError, match="over 2 clients the smallest client had at best 1"):
            make(labels, columns=columns, scheme="by-column", column="site", min_samples=2)

    @looped(
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
