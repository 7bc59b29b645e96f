"""The penalty that cross-validation chooses: what GCV says by its definition."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

from accord.closed_form.packing import PACKINGS, Packing
from accord.closed_form.ridge import Ridge, solve
from accord.closed_form.sums import Sums
from accord.core.errors import AccordError
from closed_form.support import (
    cross_validation,
    even,
    hat,
    least_on_a_fine_scan,
    scores,
    uneven,
    usual_scatter,
)
from closed_forms import Data, made_up, pixels, sums_by_hand

KINDS = {"even": even, "uneven": uneven}
SHAPES = [(60, 5), (200, 40), (50, 50), (40, 60), (20, 60)]


def assert_chosen_well(found: Ridge, data: Data, sums: Sums, within: float, case: object) -> None:
    least = least_on_a_fine_scan(data, 3, usual_scatter(sums))
    assert cross_validation(data, 3, found.penalty) <= within * least, case


def test_the_chosen_penalty_cross_validates_best() -> None:
    for case in product(KINDS, SHAPES, range(3)):
        kind, (rows, width), seed = case
        data = KINDS[kind](seed, rows, width)
        sums = sums_by_hand(data, 3)
        found = solve(sums)
        assert found.freedom < rows, case
        trace = np.trace(hat(data, found.penalty))
        assert found.freedom == pytest.approx(trace, rel=1e-4), case
        assert_chosen_well(found, data, sums, 1.05, case)


@pytest.mark.parametrize("packing", PACKINGS)
def test_it_is_chosen_well_from_rounded_sums(packing: Packing) -> None:
    # Rounding leaves no matrix without a negative eigenvalue when images are fewer than features.
    # λ is at least twice what rounding did: much for 60 features of 20 images in steps of 1/127.
    within = 1.35 if packing == "int8" else 1.25
    for case in product(KINDS, SHAPES):
        kind, (rows, width) = case
        data = KINDS[kind](0, rows, width)
        sums = sums_by_hand(data, 3)
        found = solve(Sums.of(sums.tensors(packing)))
        assert found.weights.isfinite().all(), case
        assert_chosen_well(found, data, sums, within, case)


@pytest.mark.parametrize("packing", PACKINGS)
def test_real_images_fewer_than_features_are_classified(packing: Packing) -> None:
    # Of 1,080 others, 78 % are right at the best λ, and 51 % at one that is far too small.
    features, labels = pixels(1200)
    beside = np.hstack([features, features**2, np.sqrt(features)])  # 192 features
    few, rest = np.arange(120), np.arange(120, 1200)
    found = solve(Sums.of(sums_by_hand(Data(beside[few], labels[few]), 10).tensors(packing)))
    right = scores(found, beside[rest]).argmax(axis=1) == labels[rest]
    assert right.mean() > 0.76


def test_noise_is_penalised_more_than_what_tells_classes_apart() -> None:
    data = made_up(0, 100, 10, 3)
    shuffled = Data(data.features, np.random.default_rng(0).permutation(data.labels))
    told, noise = (solve(sums_by_hand(one, 3)) for one in (data, shuffled))
    assert noise.penalty > 100 * told.penalty
    assert noise.freedom < told.freedom


# --- no larger than it must be -------------------------------------------------------------------


def on_the_grid(data: Data, scale: float, slack: float) -> float:
    """log₁₀ of λ over the scatter: from the best of all half decades down, while GCV allows."""
    grid = np.arange(-8, 3.01, 0.5)
    values = [cross_validation(data, 3, scale * 10**exponent) for exponent in grid]
    place = int(np.argmin(values))
    allowed = (1 + slack) * values[place]
    while place > 0 and values[place - 1] <= allowed:
        place -= 1
    return float(grid[place])


def test_it_is_the_smallest_whose_gcv_is_within_a_hundredth_of_the_least() -> None:
    told_apart = {0.0: 0, 0.02: 0}  # how often another slack would have chosen another λ
    for rows, width, seed in [*((60, 20, s) for s in range(6)), *((120, 100, s) for s in range(3))]:
        data = uneven(seed, rows, width)
        sums = sums_by_hand(data, 3)
        scale = usual_scatter(sums)
        expected = on_the_grid(data, scale, 0.01)
        found = np.log10(solve(sums).penalty / scale)
        assert found == pytest.approx(expected, abs=1e-9), (rows, width, seed)
        for slack in told_apart:
            told_apart[slack] += on_the_grid(data, scale, slack) != expected
    assert min(told_apart.values()) >= 2


def test_on_real_images_a_smaller_penalty_would_be_worse() -> None:
    features, labels = pixels(300)
    data = Data(np.hstack([features, features**2, np.sqrt(features)]), labels)
    sums = sums_by_hand(data, 10)
    found = solve(sums)
    least = least_on_a_fine_scan(data, 10, usual_scatter(sums))
    assert cross_validation(data, 10, found.penalty) <= 1.012 * least
    assert cross_validation(data, 10, found.penalty / 10**0.5) > 1.008 * least


def test_a_penalty_below_what_rounding_did_is_refused() -> None:
    sums = Sums.of(sums_by_hand(pixels(30), 10).tensors("int8"))
    lowest = float(torch.linalg.eigvalsh(sums.scatter)[0])
    assert lowest < 0
    solve(sums, -2.1 * lowest)
    with pytest.raises(AccordError, match="a larger `penalty`, or `packing: factor` or `float32`"):
        solve(sums, -1.9 * lowest)


# --- classes that a few directions tell apart exactly --------------------------------------------


def separated(seed: int, rows: int, width: int, noise: float) -> Data:
    """Three classes, each with features of its own, and next to nothing beside that."""
    draws = np.random.default_rng(seed)
    labels = draws.integers(0, 3, rows)
    features = np.eye(3)[labels] @ draws.normal(size=(3, width))
    return Data(features + noise * draws.normal(size=(rows, width)), labels)


def test_what_rounding_adds_is_not_taken_for_a_perfect_fit() -> None:
    # The mean and two directions tell everything: three parameters, not those of rounding errors.
    for seed in range(3):
        sums = sums_by_hand(separated(seed, 20, 60, 1e-8), 3)
        found = solve(Sums.of(sums.tensors("float32")))
        assert found.freedom == pytest.approx(3, rel=0.1), seed


def test_an_error_is_never_less_than_nothing() -> None:
    for seed, relative in product(range(3), (1e-6, 1e-4, 1e-2)):
        sums = sums_by_hand(separated(seed, 20, 60, 0.0), 3)
        for packing in ("float32", "float16"):
            arrived = Sums.of(sums.tensors(packing))
            try:
                found = solve(arrived, relative * usual_scatter(sums))
            except AccordError:
                continue  # less than what rounding did
            assert found.variance >= 0, (seed, relative, packing)


def test_a_penalty_that_meets_every_image_exactly_is_not_chosen() -> None:
    for seed in range(6):
        found = solve(sums_by_hand(separated(seed, 12, 40, 1e-2), 3))
        assert found.freedom <= 0.999 * 12, seed


def test_the_freedom_of_rounded_sums_counts_no_direction_below_zero() -> None:
    sums = Sums.of(sums_by_hand(pixels(30), 10).tensors("int8"))
    lengths = np.linalg.eigvalsh(sums.scatter.numpy())
    penalty = -2.1 * lengths[0]
    assert (lengths < -0.01 * penalty).sum() > 5
    kept = np.clip(lengths, 0, None)
    expected = 1 + (kept / (kept + penalty)).sum()
    assert solve(sums, float(penalty)).freedom == pytest.approx(expected, rel=1e-9)
