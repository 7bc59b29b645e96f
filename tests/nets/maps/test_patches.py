"""Patches against the docstring taken at its word: one patch after the other, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from scipy.linalg import fractional_matrix_power
from torch import Tensor

from accord.core.errors import AccordError
from accord.core.randomness import torch_generator
from accord.data.imageset import ImageSet
from accord.nets.dead_leaves import leaf_pictures
from accord.nets.maps import patches
from accord.nets.maps.base import Origins, pooling
from accord.nets.maps.patches import Patches, PatchModule, contrast_normalised
from closed_forms import Floats, Ints
from core.cases import case, looped
from tests_support import digits

# (channels, height, width, k): grey and colour, square and not.
IMAGES = [(1, 8, 8, 3), (1, 28, 28, 6), (3, 32, 32, 6), (3, 12, 20, 5), (1, 9, 7, 2)]


@pytest.fixture(autouse=True)
def _few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whitened by fewer patches than a study takes: the same way, in less time."""
    monkeypatch.setattr(patches, "PICTURES", 8)
    monkeypatch.setattr(patches, "SAMPLE", 1_500)


def nobodys(channels: int, seed: int = 0) -> Origins:
    """A server without public images."""
    images = np.zeros((0, 8, 8, channels), dtype=np.uint8)
    none = np.zeros(0, dtype=np.int64)
    return Origins(seed, ImageSet(images, none, none), (0.5,) * channels, (0.25,) * channels)


def of_digits(seed: int = 0, start: int = 0, count: int = 60) -> Origins:
    images, labels = digits()
    rows = np.arange(start, start + count)
    return Origins(seed, ImageSet(images, rows, labels[rows]), (0.3,), (0.35,))


def drawn(channels: int, origins: Origins | None = None, **parameters: Any) -> PatchModule:
    config = Patches(**{"count": 7, "grid": 3, **parameters})
    module = config.build(channels)
    module.load_state_dict(config.draw(channels, origins or nobodys(channels)))
    return module


def noise(*shape: int, seed: int = 7) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


# --- the definition ----------------------------------------------------------------------------


def standardised(p: Floats) -> Floats:
    """A patch at mean 0 and spread 1, or less if it is faint."""
    centred = p - p.mean()
    found: Floats = centred / np.sqrt((centred**2).mean() + patches.FLOOR)
    return found


class Literal:
    """Dictionary and whitening from the draws of a seed, kept apart; then image by image."""

    def __init__(self, config: Patches, pictures: Tensor, draws: torch.Generator):
        k, number, self.config = config.size, patches.SAMPLE, config
        places = pictures.shape[3] - k + 1
        which = torch.randint(len(pictures), (number,), generator=draws).tolist()
        where = torch.randint(
            (pictures.shape[2] - k + 1) * places, (number,), generator=draws
        ).tolist()
        sample = np.stack(
            [
                standardised(self.patch(pictures[i].double().numpy(), *divmod(place, places)))
                for i, place in zip(which, where, strict=True)
            ]
        )
        self.mean = sample.mean(axis=0)
        covariance = np.cov(sample, rowvar=False, bias=True)
        covariance = np.atleast_2d(covariance) + config.whitening * np.eye(len(self.mean))
        self.whiten = fractional_matrix_power(covariance, -0.5).real
        whitened = (sample - self.mean) @ self.whiten
        length = np.linalg.norm(whitened, axis=1)
        strong = whitened[length > 0.3 * np.median(length)]
        chosen = strong[torch.randperm(len(strong), generator=draws)[: config.count].numpy()]
        self.D = chosen / np.linalg.norm(chosen, axis=1, keepdims=True)

    def patch(self, image: Floats, row: int, column: int) -> Floats:
        k = self.config.size
        return image[:, row : row + k, column : column + k].reshape(-1)

    def features(self, image: Floats) -> Floats:
        """The two halves of every dictionary row in every window, window by window."""
        k, t, cells = self.config.size, self.config.threshold, self.config.grid
        height, width = (side - k + 1 for side in image.shape[1:])
        responses = np.zeros((height, width, 2 * self.config.count))
        for row in range(height):
            for column in range(width):
                p = standardised(self.patch(image, row, column))
                r = self.D @ self.whiten @ (p - self.mean)
                responses[row, column] = np.concatenate(
                    [np.maximum(0, r - t), np.maximum(0, -r - t)]
                )
        found = np.zeros((2 * self.config.count, cells, cells))
        for i, rows in enumerate(windows(height, cells)):
            for j, columns in enumerate(windows(width, cells)):
                found[:, i, j] = responses[np.ix_(rows, columns)].mean(axis=(0, 1))
        return found.reshape(-1)


def windows(side: int, cells: int) -> list[Ints]:
    """The places inside each window along a side; test_pooling.py is about where they are."""
    along = pooling(side, 1, cells)[:, ::cells]
    return [window.nonzero().flatten().numpy() for window in along.T]


@looped(("channels", "height", "width", "size"), IMAGES)
def test_features_are_what_the_docstring_says(
    channels: int, height: int, width: int, size: int
) -> None:
    for grid in (1, 3):
        with case(grid):
            assert_literal(channels, height, width, size, grid)


def assert_literal(channels: int, height: int, width: int, size: int, grid: int) -> None:
    module = drawn(channels, nobodys(channels, 4), size=size, grid=grid)
    pictures = leaf_pictures(patches.PICTURES, patches.SIDE, channels, 4)
    slow = Literal(module.config, pictures, torch_generator(4, "patches", 0))
    images = leaf_pictures(2, max(height, width), channels, 9)[:, :, :height, :width]
    images = torch.cat([images, noise(1, channels, height, width)])
    found = module(images)
    expected = np.stack([slow.features(image.double().numpy()) for image in images])
    assert found.shape == (3, module.width)
    assert (expected > 0).mean() > 0.3
    np.testing.assert_allclose(found.numpy(), expected, rtol=0, atol=2e-5)


def test_a_dictionary_of_public_images_is_what_the_docstring_says() -> None:
    origins = of_digits(2)
    module = drawn(1, origins, size=4, source="public")
    draws = torch_generator(2, "patches", 0)
    some = torch.randperm(60, generator=draws)[: patches.PICTURES]
    slow = Literal(module.config, origins.images(some), draws)
    image = of_digits(2, start=900).images(torch.tensor([0]))
    expected = slow.features(image[0].double().numpy())
    np.testing.assert_allclose(module(image)[0].numpy(), expected, rtol=0, atol=2e-5)


@pytest.mark.parametrize("threshold", [0.0, 0.25, 1.0])
def test_one_patch_by_hand(threshold: float) -> None:
    # One pixel of two channels, 3 and 1: mean 2, variance 1. A row (2, −2) sees 4/√(1 + floor),
    # less what the mean patch would give.
    module = PatchModule(Patches(size=1, count=1, grid=1, threshold=threshold), 2)
    module.load_state_dict(
        {"dictionary": torch.tensor([[2.0, -2.0]]), "offset": torch.tensor([0.5])}
    )
    r = 4 / (1 + patches.FLOOR) ** 0.5 - 0.5
    images = torch.tensor([3.0, 1.0]).reshape(1, 2, 1, 1)
    above, below = module(images)[0].tolist()
    assert (above, below) == (pytest.approx(r - threshold), 0)
    above, below = module(images.flip(1))[0].tolist()
    assert (above, below) == (0, pytest.approx(r + 1 - threshold))


def test_contrast_is_taken_from_each_row() -> None:
    rows = torch.tensor([[1.0, 3.0], [-20.0, 20.0], [5.0, 5.0]], dtype=torch.float64)
    one, twenty = 1 / (1 + patches.FLOOR) ** 0.5, 20 / (400 + patches.FLOOR) ** 0.5
    expected = torch.tensor([[-one, one], [-twenty, twenty], [0.0, 0.0]], dtype=torch.float64)
    torch.testing.assert_close(contrast_normalised(rows), expected)


# --- properties --------------------------------------------------------------------------------


@looped(("channels", "height", "width", "size"), IMAGES)
def test_chunks_do_not_change_values(
    monkeypatch: pytest.MonkeyPatch, channels: int, height: int, width: int, size: int
) -> None:
    module, images = drawn(channels, size=size), noise(5, channels, height, width)
    whole = module(images)
    for at_once in (1, 2_000, 2**30):
        monkeypatch.setattr(patches, "AT_ONCE", at_once)
        with case(at_once):
            torch.testing.assert_close(module(images), whole, rtol=1e-5, atol=1e-6)


@looped(("channels", "height", "width", "size"), IMAGES)
def test_an_image_alone_is_as_in_a_batch(channels: int, height: int, width: int, size: int) -> None:
    module, images = drawn(channels, size=size), noise(4, channels, height, width)
    together = module(images)
    alone = torch.cat([module(image[None]) for image in images])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    others = torch.cat([images[:1], 100 * noise(3, channels, height, width, seed=8)])
    torch.testing.assert_close(module(others)[0], together[0], rtol=1e-5, atol=1e-6)


@looped(("channels", "height", "width", "size"), IMAGES)
def test_brightness_does_not_count_and_contrast_hardly(
    channels: int, height: int, width: int, size: int
) -> None:
    module, images = drawn(channels, size=size), noise(3, channels, height, width)
    found = module(images)
    torch.testing.assert_close(module(images + 0.5), found, rtol=0, atol=1e-4)
    torch.testing.assert_close(module(2 * images), found, rtol=0, atol=0.05)


@looped(("channels", "height", "width", "size"), IMAGES)
def test_a_constant_image_is_the_patch_without_contrast(
    channels: int, height: int, width: int, size: int
) -> None:
    module = drawn(channels, size=size, threshold=0.01)
    r = -module.offset[:, None].expand(-1, 9)
    expected = torch.cat([(r - 0.01).relu(), (-r - 0.01).relu()]).reshape(1, -1)
    assert expected.any()
    for value in (0.0, 1.7, -300.0):
        found = module(torch.full((1, channels, height, width), value))
        # Rows of D add up to 0 but for rounding, which a large value shows.
        with case(value):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 * max(1, abs(value)))


@pytest.mark.parametrize("source", ["synthetic", "public"])
def test_a_seed_decides_every_bit(source: str) -> None:
    first, same, other = (
        Patches(count=5, size=3, source=source).draw(1, of_digits(seed)) for seed in (1, 1, 2)
    )
    torch.manual_seed(3)
    assert first.keys() == same.keys()
    for name, tensor in first.items():
        assert torch.equal(tensor, same[name])
        assert not torch.equal(tensor, other[name])


def test_public_images_count_only_where_they_are_asked_for() -> None:
    for source, same in (("synthetic", True), ("public", False)):
        config = Patches(count=5, size=3, source=source)
        assert config.needs_public is not same
        one, two = (config.draw(1, of_digits(0, start)) for start in (0, 500))
        assert torch.equal(one["dictionary"], two["dictionary"]) is same


@looped(("channels", "size"), [(3, 1), (1, 2), (3, 2), (1, 6), (3, 6)])
def test_rows_are_centred_and_unlike_each_other(channels: int, size: int) -> None:
    D = drawn(channels, size=size, count=20).dictionary
    assert D.shape == (20, channels * size**2)
    assert D.isfinite().all()
    assert D.sum(dim=1).abs().max() < 1e-4
    assert len({tuple(row) for row in D.tolist()}) > 15


def test_patches_without_contrast_make_no_dictionary() -> None:
    # A patch of one grey pixel is 0 once it is centred; so is any patch of a blank image.
    with pytest.raises(AccordError, match="contrast"):
        drawn(1, size=1)
    blank = ImageSet(np.full((5, 8, 8, 1), 9, dtype=np.uint8), np.arange(5), np.zeros(5, np.int64))
    with pytest.raises(AccordError, match="contrast"):
        drawn(1, Origins(0, blank, (0.3,), (0.35,)), size=3, source="public")


def test_an_image_smaller_than_a_patch_is_refused() -> None:
    with pytest.raises(AccordError, match="size"):
        drawn(1, size=6)(noise(2, 1, 5, 8))


def test_more_rows_keep_the_first_ones() -> None:
    few, many = (drawn(3, count=count).dictionary for count in (4, 11))
    torch.testing.assert_close(many[:4], few, rtol=0, atol=0)


def test_few_public_images_give_a_dictionary_too() -> None:
    # One image of 8×8 has 36 patches of 3×3; every one is drawn many times.
    module = drawn(1, of_digits(count=1), size=3, count=20, source="public")
    assert module(noise(2, 1, 8, 8)).isfinite().all()
