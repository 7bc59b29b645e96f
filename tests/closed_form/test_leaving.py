"""Leaving out each client of a closed form: the downdate is the fit of the others."""

from __future__ import annotations

from functools import reduce
from operator import add

import numpy as np
import pytest
import torch

from accord.closed_form.leaving import Checked, Gain, gains_without_each, relative_penalty
from accord.closed_form.ridge import plain_weights, solve
from accord.closed_form.sums import Sums
from closed_forms import dealt, pixels, sums_by_hand
from core.cases import case

CLASSES = 10


def parts() -> tuple[list[Sums], Checked]:
    data = pixels(400)
    train, held = data.take(np.arange(300)), data.take(np.arange(300, 400))
    sums = [sums_by_hand(one, CLASSES) for one in dealt(train, 5, 0)]
    return sums, Checked(torch.from_numpy(held.features), torch.from_numpy(held.labels))


def flipped(sums: Sums) -> Sums:
    return Sums(sums.counts.flip(0), sums.sums.flip(0), sums.scatter)


def test_plain_weights_are_those_of_the_whole_solution() -> None:
    sums, _ = parts()
    total = reduce(add, sums)
    found = solve(total)
    weights, bias = plain_weights(total, relative_penalty(total, None))
    torch.testing.assert_close(weights.T, found.weights)
    torch.testing.assert_close(bias, found.bias)


def test_each_gain_is_that_of_a_fit_without_the_client() -> None:
    sums, checked = parts()
    sums[2] = flipped(sums[2])
    total = reduce(add, sums)
    relative = relative_penalty(total, 30.0)
    found = list(gains_without_each(total, sums, checked, 30.0))
    for place, gain in enumerate(found):
        with case(place):
            others = reduce(add, [one for k, one in enumerate(sums) if k != place])
            right = checked.hits(others, relative)
            assert gain is not None
            assert right is not None
            assert gain.after == pytest.approx(right.double().mean().item())
    best = max(range(5), key=lambda k: found[k].gain if found[k] else -1)  # type: ignore[union-attr]
    assert best == 2


def test_the_error_is_paired() -> None:
    """100 images: 4 become right and 1 becomes wrong."""
    before, after = torch.zeros(100, dtype=torch.bool), torch.zeros(100, dtype=torch.bool)
    before[:61], after[1:65] = True, True
    one = Gain.of(before, after)
    assert (one.before, one.after) == pytest.approx((0.61, 0.64))
    assert one.error == pytest.approx(((0.05 - 0.03**2) / 100) ** 0.5)


def test_a_client_alone_cannot_be_left_out() -> None:
    sums, checked = parts()
    assert list(gains_without_each(sums[0], [sums[0]], checked)) == [None]
