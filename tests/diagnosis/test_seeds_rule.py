"""How many seeds tell two recipes apart: the paired t-test and its power."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import ttest_rel

from accord.diagnosis.rules.seeds import clear, power, seeds_needed
from diagnosed import Written, findings


def test_the_test_agrees_with_scipy() -> None:
    generator = np.random.default_rng(0)
    for shift in (0.0, 0.5, 1.0, 2.0):
        for count in (2, 3, 5, 10):
            one, other = generator.normal(shift, 1, count), generator.normal(0, 1, count)
            significant = ttest_rel(one, other).pvalue < 0.05
            assert clear((one - other).tolist()) == significant


@pytest.mark.parametrize(("effect", "published"), [(0.2, 199), (0.5, 34), (0.8, 15), (1.0, 10)])
def test_the_numbers_of_seeds_are_those_of_the_tables(effect: float, published: int) -> None:
    """G*Power: a paired t-test on both sides at 5 % with a power of 80 %."""
    spread = np.array([-1.0, 0.0, 1.0])  # standard deviation 1
    assert seeds_needed((spread + effect).tolist()) == published


def test_the_power_agrees_with_a_simulation() -> None:
    generator = np.random.default_rng(1)
    samples = generator.normal(0.9, 1, (20_000, 8))
    t = samples.mean(axis=1) * 8**0.5 / samples.std(axis=1, ddof=1)
    assert power(0.9, 8) == pytest.approx((np.abs(t) > 2.3646).mean(), abs=0.01)


def test_no_number_of_seeds_is_named_for_equal_recipes() -> None:
    assert seeds_needed([0.01, -0.01, 0.0]) is None
    assert seeds_needed([0.1, -0.099, 0.0005]) is None
    assert seeds_needed([0.0, 0.0]) is None


def recipes(**accuracies: list[float]) -> list[Written]:
    return [
        Written(name, seed).at(5, features=value)
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]


def test_recipes_that_seeds_do_not_tell_apart_are_found(tmp_path: Path) -> None:
    few = partial(findings, tmp_path, rule="few-seeds")
    (found,) = few(*recipes(fafi=[0.5, 0.6, 0.4], fedsra=[0.47, 0.54, 0.39]))
    # Differences 3, 6 and 1 points: mean 3.3, standard deviation 2.5, t = 2.3 with 2 degrees.
    assert "fafi − fedsra: 3.3 points ± 2.5 over 3 seeds" in found.evidence[0]
    assert "about 7 seeds" in found.evidence[0]
    assert "seeds=[0, 1, 2, 3, 4, 5, 6]" in (found.override or "")
    assert few(*recipes(fafi=[0.5, 0.6, 0.4], fedsra=[0.4, 0.51, 0.305])) == []


def test_one_seed_is_not_conclusive(tmp_path: Path) -> None:
    few = partial(findings, tmp_path, rule="few-seeds")
    (found,) = few(*recipes(fafi=[0.5], fedsra=[0.4]))
    assert found.evidence == ["α 0.05, fafi − fedsra: 10.0 points, with one seed."]
    assert "seeds=[0, 1, 2]" in (found.override or "")
    assert few(*recipes(fafi=[0.5])) == []
    other = Written("fedsra", 0, alpha=0.5).at(5, features=0.4)
    assert few(*recipes(fafi=[0.5]), other) == []  # another setting
