"""`entropy`: λ_k = λ_min + (H_k / log₂C)·(λ_max − λ_min), against note 001's five clients."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from accord.balance.entropy import entropy_bits, normalised_entropy
from accord.core.errors import AccordError
from balance.support import a_step, started
from core.cases import looped

# Note 001: CIFAR-10 at α = 0.05, five clients, λ from 0.1 to 10.
BITS = [1.9079, 1.7997, 0.6091, 1.1689, 1.7245]
NORMALISED = [0.5743, 0.5418, 0.1834, 0.3519, 0.5191]
LAMBDA = [5.7859, 5.4634, 1.9152, 3.5837, 5.2395]
clients = looped("client", range(5))

some_counts = st.lists(st.integers(0, 5000), min_size=2, max_size=20).filter(any)


def lambda_of(counts: list[int], **params: float) -> float:
    found = started("entropy", params, counts).readings(0.0).lambda_raw
    assert found is not None
    return found


def counts_with(bits: float, classes: int = 10, images: int = 10**9) -> list[int]:
    """One frequent class and even rest, in the proportion that has this entropy (by bisection)."""

    def entropy(rest: float) -> float:
        return -(1 - rest) * math.log2(1 - rest) - rest * math.log2(rest / (classes - 1))

    low, high = 1e-12, 1 - 1 / classes
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if entropy(middle) < bits else (low, middle)
    return [round((1 - low) * images), *[round(low * images / (classes - 1))] * (classes - 1)]


@clients
def test_lambda_of_note_001(client: int) -> None:
    counts = counts_with(BITS[client])
    assert entropy_bits(torch.tensor(counts)) == pytest.approx(BITS[client], abs=1e-6)
    assert normalised_entropy(torch.tensor(counts)) == pytest.approx(NORMALISED[client], abs=1e-4)
    assert lambda_of(counts) == pytest.approx(LAMBDA[client], abs=2e-4)


def test_the_figures_above_are_the_notes() -> None:
    oracle = Path(__file__).resolve().parents[3] / "shared" / "oracles" / "note-001-lambda.json"
    if not oracle.exists():
        pytest.skip(f"needs {oracle}")
    note = json.loads(oracle.read_text(encoding="utf-8"))
    assert note["entropy"] == {"entropy_bits": BITS, "normalised": NORMALISED, "lambda": LAMBDA}
    assert (note["classes"], note["lambda_min"], note["lambda_max"]) == (10, 0.1, 10.0)


@looped(
    ("counts", "bits"),
    [
        ([7, 0, 0, 0], 0.0),
        ([3, 3, 0, 0], 1.0),
        ([2, 1, 1, 0], 1.5),
        ([5, 5, 5, 5], 2.0),
        ([1, 3], 2 - 0.75 * math.log2(3)),
    ],
)
def test_entropy_by_hand(counts: list[int], bits: float) -> None:
    assert entropy_bits(torch.tensor(counts)) == pytest.approx(bits, abs=1e-12)
    share = bits / math.log2(len(counts))
    assert lambda_of(counts) == pytest.approx(0.1 + 9.9 * share, abs=1e-12)
    other = lambda_of(counts, lambda_min=2, lambda_max=4)
    assert other == pytest.approx(2 + 2 * share, abs=1e-12)


def test_a_world_of_one_class_has_no_entropy() -> None:
    assert lambda_of([9]) == 0.1


@settings(max_examples=200, deadline=None)
@given(counts=some_counts)
def test_lambda_stays_between_its_ends(counts: list[int]) -> None:
    share = normalised_entropy(torch.tensor(counts))
    assert 0 <= share <= 1 + 1e-12
    assert 0.1 <= lambda_of(counts) <= 10 + 1e-10


@settings(max_examples=100, deadline=None)
@given(counts=some_counts, data=st.data())
def test_which_class_is_which_does_not_matter(counts: list[int], data: st.DataObject) -> None:
    mixed = data.draw(st.permutations(counts))
    assert lambda_of(mixed) == pytest.approx(lambda_of(counts), rel=1e-12)


@settings(max_examples=100, deadline=None)
@given(counts=some_counts, times=st.integers(2, 1000))
def test_only_proportions_matter(counts: list[int], times: int) -> None:
    more = [times * count for count in counts]
    assert lambda_of(more) == pytest.approx(lambda_of(counts), rel=1e-9)


def test_lambda_is_constant_unless_attenuated() -> None:
    constant, linear = started("entropy"), started("entropy", {"attenuation": "linear"})
    first = constant.weigh(a_step(progress=0.0)).align
    assert constant.weigh(a_step(progress=0.75)).align == first
    assert linear.weigh(a_step(progress=0.75)).align == first * 0.25
    assert linear.readings(0.75).lambda_raw == first


def test_ends_in_the_wrong_order_are_refused() -> None:
    with pytest.raises(AccordError, match=r"balance.*lambda_min should not exceed lambda_max"):
        started("entropy", {"lambda_min": 3, "lambda_max": 2})


@pytest.mark.parametrize("key", ["lambda_min", "lambda_max"])
def test_a_negative_lambda_is_refused(key: str) -> None:
    with pytest.raises(AccordError, match=rf"balance\.{key}"):
        started("entropy", {key: -0.5})
