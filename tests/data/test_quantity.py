"""Quantity skew: the sizes follow the stated law, and every client has the same mix of classes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.partition import Partition, make_partition
from accord.data.schemes import make_scheme
from accord.data.schemes.sized import cut_by_shares
from core.cases import looped

CLASSES, EACH = 4, 500
LABELS = np.repeat(np.arange(CLASSES), EACH)


def make(seed: int = 0, **values: Any) -> Partition:
    return make_partition(LABELS, CLASSES, make_scheme(values), seed, {})


def sizes(seeds: int, **values: Any) -> NDArray[np.float64]:
    """The shares of all images that the clients of each seed have."""
    drawn = [make(seed, **values).label_counts.sum(axis=1) for seed in range(seeds)]
    return np.array(drawn) / len(LABELS)


def test_the_parts_are_cut_at_rounded_shares() -> None:
    parts = cut_by_shares(10, np.array([0.26, 0.0, 0.37, 0.37]), numpy_generator(0, "cut"))
    assert [len(part) for part in parts] == [3, 0, 3, 4]  # cuts at 2.6, 2.6 and 6.3
    assert sorted(np.concatenate(parts).tolist()) == list(range(10))
    assert np.concatenate(parts).tolist() != list(range(10))


@settings(max_examples=50, deadline=None)
@given(
    size=st.integers(1, 200),
    shares=st.lists(st.floats(0, 1), min_size=1, max_size=9).filter(lambda found: sum(found) > 0),
    seed=st.integers(0, 100),
)
def test_every_image_is_used_once_at_any_shares(size: int, shares: list[float], seed: int) -> None:
    p = np.array(shares) / np.sum(shares)
    parts = cut_by_shares(size, p, numpy_generator(seed, "cut"))
    assert sorted(np.concatenate(parts).tolist()) == list(range(size))
    assert all(abs(len(part) - q * size) <= 1 for part, q in zip(parts, p, strict=True))


def test_log_normal_sizes_have_the_stated_deviation() -> None:
    """ln n_a − ln n_b ~ N(0, 2σ²) for two clients, whatever the other clients have."""
    for sigma in (0.3, 0.6):
        found = sizes(400, scheme="quantity-lognormal", sigma=sigma, clients=4)
        apart = np.log(found[:, 0]) - np.log(found[:, 1])
        assert apart.std() == pytest.approx(np.sqrt(2) * sigma, rel=0.1)
        assert stats.kstest(apart / (np.sqrt(2) * sigma), "norm").pvalue > 1e-3


def test_dirichlet_sizes_have_the_moments_of_the_dirichlet() -> None:
    for alpha in (1.0, 5.0):
        found = sizes(400, scheme="quantity-dirichlet", alpha=alpha, clients=4)
        expected = stats.dirichlet([alpha] * 4)
        np.testing.assert_allclose(found.mean(axis=0), expected.mean(), atol=0.03)
        np.testing.assert_allclose(found.var(axis=0), expected.var(), rtol=0.25)


@looped(
    ("name", "key", "values"),
    [
        ("quantity-lognormal", "sigma", [0.0, 0.2, 0.5, 1.0, 2.0]),
        ("quantity-dirichlet", "alpha", [1e9, 100.0, 10.0, 2.0, 0.5]),
    ],
)
def test_sizes_differ_more_and_more(name: str, key: str, values: list[float]) -> None:
    """From equal sizes at one limit of the setting; the mix of classes stays that of all images."""
    spreads = []
    for value in values:
        found = [make(seed, scheme=name, clients=5, **{key: value}) for seed in range(30)]
        counts = np.stack([one.label_counts for one in found])
        held = counts.sum(axis=2)
        spreads.append(float((held.std(axis=1) / held.mean(axis=1)).mean()))
        large = held >= 200
        mix = counts[large] / held[large][:, None]
        assert np.abs(mix - 1 / CLASSES).max() < 0.16  # 5 standard deviations of 200 labels
    assert spreads[0] < 1e-3
    assert spreads == sorted(spreads)
    assert spreads[-1] > 0.7


def test_small_clients_are_drawn_again_and_then_refused() -> None:
    for name in ("quantity-lognormal", "quantity-dirichlet"):
        found = make(scheme=name, clients=5, min_samples=150)
        assert found.label_counts.sum(axis=1).min() >= 150
    cases: list[tuple[dict[str, Any], str]] = [
        ({"scheme": "quantity-lognormal", "sigma": 100}, "sigma 100.*Use fewer clients, a smaller"),
        ({"scheme": "quantity-dirichlet", "alpha": 1e-9}, "alpha 1e-09.*, a larger alpha or"),
    ]
    for values, remedy in cases:
        with pytest.raises(AccordError, match=f"with {remedy}"):
            make(clients=5, min_samples=2, **values)


def test_settings_out_of_range_are_refused() -> None:
    for key, value in (("sigma", -0.1), ("sigma", 101), ("sigma", float("nan")), ("alpha", 1)):
        with pytest.raises(AccordError, match=f"partition.{key}"):
            make_scheme({"scheme": "quantity-lognormal", key: value})
    with pytest.raises(AccordError, match=r"partition\.alpha"):
        make_scheme({"scheme": "quantity-dirichlet", "alpha": 0})


def test_alpha_is_for_tables_and_sigma_is_not() -> None:
    """The column α is a concentration; sigma has a column of its own if it is a grid axis."""
    assert make_scheme({"scheme": "quantity-dirichlet", "alpha": 2}).skew == 2
    assert make_scheme({"scheme": "quantity-lognormal"}).skew is None
