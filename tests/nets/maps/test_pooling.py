"""Windows of a grid: they average, they overlap by half, and no place is left out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from accord.nets.maps.base import pooling
from core.cases import looped

sides = st.integers(1, 40)
grids = st.integers(1, 8)


def test_three_windows_on_27_places() -> None:
    # The 27 places of a 6×6 patch on 32 pixels, pooled 13 by 13 with a stride of 7.
    rows = pooling(27, 1, 3)[:, ::3]  # one column of the image: windows differ by row
    for cell, start in enumerate((0, 7, 14)):
        expected = torch.zeros(27)
        expected[start : start + 13] = 1 / 13
        torch.testing.assert_close(rows[:, cell], expected)


@pytest.mark.parametrize(("side", "size", "stride"), [(11, 5, 3), (23, 11, 6), (27, 13, 7)])
def test_it_is_average_pooling(side: int, size: int, stride: int) -> None:
    features = torch.randn(2, 5, side, side, generator=torch.Generator().manual_seed(0))
    found = features.flatten(2) @ pooling(side, side, 3)
    expected = F.avg_pool2d(features, size, stride)
    torch.testing.assert_close(found, expected.flatten(2), rtol=1e-5, atol=1e-6)


@settings(max_examples=60, deadline=None)
@given(height=sides, width=sides, cells=grids)
def test_every_window_is_an_average_over_a_rectangle(height: int, width: int, cells: int) -> None:
    pool = pooling(height, width, cells)
    assert pool.shape == (height * width, cells * cells)
    torch.testing.assert_close(pool.sum(dim=0), torch.ones(cells * cells))
    for window in pool.T:
        inside = window.reshape(height, width) > 0
        assert inside.sum() == inside.any(dim=1).sum() * inside.any(dim=0).sum()
        assert len(window[window > 0].unique()) == 1


@settings(max_examples=40, deadline=None)
@given(height=sides, width=sides)
def test_one_window_is_the_mean(height: int, width: int) -> None:
    features = torch.randn(3, height, width, generator=torch.Generator().manual_seed(1))
    found = features.flatten(1) @ pooling(height, width, 1)
    torch.testing.assert_close(found.flatten(), features.mean(dim=(1, 2)), rtol=1e-5, atol=1e-6)


@settings(max_examples=100, deadline=None)
@given(side=sides, cells=grids)
def test_windows_go_from_one_end_to_the_other(side: int, cells: int) -> None:
    along = pooling(side, 1, cells)[:, ::cells]
    starts = [int(window.nonzero()[0]) for window in along.T]
    assert starts == sorted(starts)
    if cells <= side:
        assert starts[0] == 0
        assert along[-1, -1] > 0
        assert bool((along > 0).any(dim=1).all())


@looped(("side", "cells"), [(4, 2), (8, 4), (16, 4), (27, 4), (7, 4), (10, 3)])
def test_every_place_is_seen(side: int, cells: int) -> None:
    # An encoder's 8×8 map on a grid of 4, for one.
    assert bool((pooling(side, side, cells).sum(dim=1) > 0).all())


@settings(max_examples=40, deadline=None)
@given(height=sides, width=sides, cells=grids)
def test_rows_and_columns_are_pooled_apart(height: int, width: int, cells: int) -> None:
    down, across = pooling(height, 1, cells)[:, ::cells], pooling(1, width, cells)[:, :cells]
    expected = np.kron(down.numpy(), across.numpy())
    np.testing.assert_allclose(pooling(height, width, cells).numpy(), expected, rtol=1e-6)


@pytest.mark.parametrize("cells", [2, 3, 4])
def test_places_fewer_than_windows_are_read_more_than_once(cells: int) -> None:
    assert torch.equal(pooling(1, 1, cells), torch.ones(1, cells * cells))
