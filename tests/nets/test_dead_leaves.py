"""Made-up pictures: the same for everybody, and with the spectra and edges of photographs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy.stats import kurtosis
from torch import Tensor

from accord.nets.dead_leaves import leaf_pictures
from core.cases import looped

COUNT, SIDE = 40, 32


@pytest.fixture(scope="module")
def pictures() -> Tensor:
    return leaf_pictures(COUNT, SIDE, 3, 0)


def test_a_seed_gives_everybody_the_same_pictures(pictures: Tensor) -> None:
    torch.manual_seed(5)
    before = torch.get_rng_state()
    assert torch.equal(leaf_pictures(COUNT, SIDE, 3, 0), pictures)
    assert torch.equal(before, torch.get_rng_state())


def test_another_seed_gives_others(pictures: Tensor) -> None:
    other = leaf_pictures(COUNT, SIDE, 3, 1)
    assert (other - pictures).abs().mean() > 0.5
    assert not any(torch.equal(a, b) for a in pictures[:5] for b in pictures[5:10])


@looped("channels", [1, 2, 3, 4])
def test_every_channel_has_mean_0_and_spread_1(channels: int) -> None:
    x = leaf_pictures(10, 16, channels, 3)
    assert x.shape == (10, channels, 16, 16)
    assert x.dtype == torch.float32
    assert x.isfinite().all()
    assert x.mean(dim=(0, 2, 3)).abs().max() < 1e-5
    torch.testing.assert_close(x.std(dim=(0, 2, 3)), torch.ones(channels), rtol=1e-4, atol=0)


def test_grey_pictures_are_the_coloured_ones_without_colour(pictures: Tensor) -> None:
    # Channels have nearly the same spread, so that a mean before or after scaling is much alike.
    grey = leaf_pictures(COUNT, SIDE, 1, 0).flatten()
    mixed = pictures.mean(dim=1).flatten()
    assert np.corrcoef(grey.numpy(), mixed.numpy())[0, 1] > 0.999


def slope(x: Tensor) -> float:
    """Of log power against log frequency, from 2 to 12 waves along a side."""
    window = np.hanning(SIDE)[:, None] * np.hanning(SIDE)
    power = (np.abs(np.fft.fft2(x.mean(dim=1).numpy() * window)) ** 2).mean(axis=0)
    waves = np.fft.fftfreq(SIDE) * SIDE
    radius = np.hypot(waves[:, None], waves)
    rings = range(2, 13)
    mean = [power[(radius >= ring - 0.5) & (radius < ring + 0.5)].mean() for ring in rings]
    return float(np.polyfit(np.log(rings), np.log(mean), 1)[0])


def test_power_falls_with_frequency_as_in_photographs(pictures: Tensor) -> None:
    # Photographs are near −2; a little less steep at the edges of leaves, more by the blur.
    assert -3.5 < slope(pictures) < -1.0
    noise = torch.randn(COUNT, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(0))
    assert abs(slope(noise)) < 0.3  # the same measure of a flat spectrum


def test_there_are_surfaces_and_edges(pictures: Tensor) -> None:
    # Neighbours mostly agree and sometimes differ by a lot: heavy tails, where noise has 0.
    difference = (pictures[..., 1:] - pictures[..., :-1]).flatten().numpy()
    assert kurtosis(difference) > 4
    assert difference.std() < 0.7


def test_channels_are_alike_but_not_the_same(pictures: Tensor) -> None:
    found = np.corrcoef(pictures.transpose(0, 1).flatten(1).numpy())
    assert (found[np.triu_indices(3, 1)] > 0.5).all()
    assert (found[np.triu_indices(3, 1)] < 0.99).all()
