"""Views: the named sets, the laws of their draws, every draw per image, one normalisation."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from accord.core.errors import AccordError
from accord.data.augmentations import Augmentation, augmentations
from accord.data.views import augment, normalise
from core.cases import looped

MEAN, STD = (0.5, 0.4, 0.3), (0.2, 0.25, 0.3)
PLAIN = (0.0,) * 3, (1.0,) * 3  # as mean and std: leaves [0, 1] as it is


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def pictures(count: int, height: int = 16, width: int = 16, channels: int = 3) -> Tensor:
    shape = (count, height, width, channels)
    return torch.randint(256, shape, generator=generator(9)).byte()


def distance_from_uniform(values: Tensor) -> float:
    """Kolmogorov–Smirnov: the largest gap to the law of U(0, 1)."""
    n = len(values)
    return (values.sort().values - (torch.arange(n) + 0.5) / n).abs().max().item()


# Laws


def test_probabilities_hold() -> None:
    images = pictures(1, 4, 4).repeat(4000, 1, 1, 1)
    whole = Augmentation()
    original = normalise(images[:1], *PLAIN)
    mirrored = original.flip(3)
    flipped = augment(images, replace(whole, flip=0.3), 1, generator(), *PLAIN)
    grey = augment(images, replace(whole, grey=0.2), 1, generator(1), *PLAIN)
    dark = augment(images, replace(whole, jitter=0.8, brightness=0.4), 1, generator(2), *PLAIN)
    for share, probability in [
        (((flipped - mirrored).abs().amax((1, 2, 3)) < 1e-5).float().mean(), 0.3),
        ((grey[:, 0] == grey[:, 1]).all(2).all(1).float().mean(), 0.2),
        (((dark - original).abs().amax((1, 2, 3)) > 1e-5).float().mean(), 0.8),
    ]:
        assert share.item() == pytest.approx(probability, abs=0.03)


def test_factors_are_uniform_about_one() -> None:
    images = torch.full((4000, 2, 2, 1), 100, dtype=torch.uint8)
    brighter = Augmentation(jitter=1.0, brightness=0.4)
    values = augment(images, brighter, 1, generator(), (0.0,), (1.0,))[:, 0, 0, 0]
    factors = values * 255 / 100
    assert distance_from_uniform((factors - 0.6) / 0.8) < 1.63 / math.sqrt(4000)


# The sets


def test_the_named_sets() -> None:
    assert augmentations.names() == [
        "digits",
        "holes",
        "light",
        "none",
        "reference",
        "upright",
        "upright-holes",
    ]
    reference = augmentations.get("reference")
    assert reference == Augmentation(
        (0.2, 1.0), (3 / 4, 4 / 3), 0.0, 0.5, 0.8, 0.4, 0.4, 0.4, 0.1, 0.2
    )
    assert augmentations.get("upright") == replace(reference, flip=0.0)
    assert augmentations.get("holes") == Augmentation(shift=1 / 8, flip=0.5, hole=5 / 16)


@looped(
    ("name", "flips"),
    [
        ("digits", 0),
        ("upright", 0),
        ("reference", 1),
        ("light", 1),
        ("holes", 1),
        ("upright-holes", 0),
    ],
)
def test_only_some_sets_flip(name: str, flips: int) -> None:
    ramp = torch.linspace(0, 200, 16).byte().view(1, 1, 16, 1).expand(200, 16, 16, 3)
    views = augment(ramp, augmentations.get(name), 2, generator(), MEAN, STD)
    falling = (views[..., 0] > views[..., -1]).flatten(1).all(dim=1)
    assert falling.any() == bool(flips)


def test_a_shift_moves_by_whole_pixels_and_repeats_the_edge() -> None:
    """Every view is one of the 5 × 5 shifts of its image by up to 2 of 16 pixels, and all occur."""
    image = pictures(1)
    views = augment(image.repeat(600, 1, 1, 1), Augmentation(shift=1 / 8), 1, generator(), *PLAIN)
    plane = image.permute(0, 3, 1, 2).float() / 255
    wide = torch.nn.functional.pad(plane, (2, 2, 2, 2), mode="replicate")
    height, width = plane.shape[2:]
    assert (height, width) == (16, 16)
    shifts = [wide[0, :, y : y + 16, x : x + 16] for y in range(5) for x in range(5)]
    gaps = torch.stack([(views - shift).abs().amax(dim=(1, 2, 3)) for shift in shifts], dim=1)
    nearest, which = gaps.min(dim=1)
    assert nearest.max() < 1e-5
    assert len(set(which.tolist())) == 25


def test_a_hole_is_one_square_of_the_mean_around_any_pixel() -> None:
    """Sides of 5 of 16 pixels, cut off at the edges; all pixels are centres equally often."""
    images = torch.full((4000, 16, 16, 3), 255, dtype=torch.uint8)
    views = augment(images, Augmentation(hole=5 / 16), 1, generator(), MEAN, STD)
    hole = (views.abs() < 1e-5).all(dim=1)  # the mean is 0 after the normalisation
    white = normalise(images[:1], MEAN, STD)[0, :, 0, 0]
    assert torch.equal(views.permute(0, 2, 3, 1)[~hole], white.expand(int((~hole).sum()), 3))
    rows, columns = hole.any(dim=2), hole.any(dim=1)
    assert torch.equal(hole, rows[:, :, None] & columns[:, None, :])  # a rectangle …
    for sides in (rows, columns):
        # … of 5 pixels, and of 4 or 3 in the two outer rows of centres on each side
        found = torch.bincount(sides.sum(dim=1), minlength=6)[3:] / 4000
        torch.testing.assert_close(found, torch.tensor([2, 2, 12]) / 16, rtol=0, atol=0.03)
        changes = sides.int().diff(dim=1).ne(0).sum(dim=1)
        assert int(changes.max()) <= 2  # without gaps
    covered = hole.float().mean(dim=0)[4:12, 4:12]
    torch.testing.assert_close(covered, torch.full((8, 8), 25 / 256), rtol=0, atol=0.02)


def test_digits_keep_their_colours() -> None:
    images = pictures(50)
    images[..., 1] = images[..., 0] // 2
    images[..., 2] = 0
    gentle = replace(augmentations.get("digits"), contrast=0.0)  # contrast shifts all channels
    red, green, blue = augment(images, gentle, 1, generator(), *PLAIN).unbind(1)
    unclamped = red < 0.999
    torch.testing.assert_close(green[unclamped], red[unclamped] / 2, rtol=0, atol=0.005)
    assert blue.max() == 0


def test_none_is_normalise() -> None:
    images = pictures(5)
    views = augment(images, augmentations.get("none"), 2, generator(), MEAN, STD)
    assert torch.equal(views, normalise(images.repeat(2, 1, 1, 1), MEAN, STD))


def test_normalise_is_its_formula() -> None:
    images = pictures(5, 7, 6)
    expected = images.permute(0, 3, 1, 2).float() / 255
    expected = (expected - torch.tensor(MEAN).view(3, 1, 1)) / torch.tensor(STD).view(3, 1, 1)
    result = normalise(images, MEAN, STD)
    torch.testing.assert_close(result, expected)
    assert result.is_contiguous(memory_format=torch.channels_last)


def test_train_and_test_share_one_normalisation() -> None:
    images = torch.full((1, 8, 8, 3), 77, dtype=torch.uint8).repeat(4, 1, 1, 1)
    cropped = augment(images, Augmentation(scale=(0.2, 1.0), flip=0.5), 2, generator(), MEAN, STD)
    expected = normalise(images.repeat(2, 1, 1, 1), MEAN, STD)  # a crop of a flat image is flat
    torch.testing.assert_close(cropped, expected, rtol=0, atol=1e-5)


# Per image, and from the generator alone


def test_draws_differ_inside_a_batch_and_between_views() -> None:
    images = pictures(1).repeat(20, 1, 1, 1)
    views = augment(images, augmentations.get("reference"), 2, generator(), MEAN, STD)
    assert len({tuple(view) for view in views.flatten(1).tolist()}) == 40


def test_view_0_of_all_images_comes_first() -> None:
    levels = torch.tensor([10, 100, 200], dtype=torch.uint8)
    images = levels.view(3, 1, 1, 1).expand(3, 8, 8, 3).contiguous()
    views = augment(images, Augmentation(scale=(0.3, 1.0)), 2, generator(), *PLAIN)
    expected = (levels.float() / 255).repeat(2)
    torch.testing.assert_close(views[:, 0, 0, 0], expected)


def test_large_batches_are_like_small_ones() -> None:
    """Images change in parts; a view still belongs to its image, past the first part as well."""
    levels = (torch.arange(300) % 256).byte()
    images = levels.view(300, 1, 1, 1).expand(300, 32, 32, 3)
    views = augment(images, Augmentation(scale=(0.3, 1.0)), 2, generator(), *PLAIN)
    torch.testing.assert_close(views[:, 0, 0, 0], (levels.float() / 255).repeat(2))


@looped("name", augmentations.names())
def test_the_generator_decides_every_bit(name: str) -> None:
    images, augmentation = pictures(70), augmentations.get(name)
    before, state = images.clone(), torch.get_rng_state()
    first, same, other = (
        augment(images, augmentation, 2, generator(seed), MEAN, STD) for seed in (1, 1, 2)
    )
    assert torch.equal(first, same)
    assert torch.equal(first, other) == (name == "none")
    assert torch.equal(images, before)
    assert torch.equal(state, torch.get_rng_state())


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(0, 5),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    views=st.integers(1, 3),
    name=st.sampled_from(augmentations.names()),
    seed=st.integers(0, 2**31),
)
def test_views_are_finite_and_in_range(
    count: int, height: int, width: int, channels: int, views: int, name: str, seed: int
) -> None:
    images = pictures(count, height, width, channels)
    mean, std = MEAN[:channels], STD[:channels]
    result = augment(images, augmentations.get(name), views, generator(seed), mean, std)
    assert result.shape == (views * count, channels, height, width)
    assert result.dtype == torch.float32
    assert result.permute(0, 2, 3, 1).is_contiguous()
    low = (0 - torch.tensor(mean)) / torch.tensor(std) - 1e-4
    high = (1 - torch.tensor(mean)) / torch.tensor(std) + 1e-4
    assert (result >= low.view(-1, 1, 1)).all()
    assert (result <= high.view(-1, 1, 1)).all()


# Mistakes


@looped(
    ("change", "message"),
    [
        ({"scale": (0.0, 1.0)}, "scale must be 0 < low ≤ high ≤ 1"),
        ({"scale": (0.9, 0.2)}, "scale must be"),
        ({"ratio": (2.0, 1.0)}, "ratio must be"),
        ({"flip": 1.5}, "flip must be a probability"),
        ({"contrast": -0.1}, "contrast must be"),
        ({"hole": 1.5}, "hole must be a share from 0 to 1"),
        ({"hue": 0.6}, "hue must be a strength from 0 to 0.5, found 0.6"),
    ],
)
def test_impossible_augmentations_are_explained(change: dict[str, float], message: str) -> None:
    with pytest.raises(AccordError, match=message):
        replace(Augmentation(), **change)  # type: ignore[arg-type]


def test_unfit_images_are_explained() -> None:
    with pytest.raises(AccordError, match="uint8"):
        normalise(torch.zeros(2, 4, 4, 3), MEAN, STD)
    with pytest.raises(AccordError, match="images of 1 channels need"):
        normalise(pictures(2, channels=1), MEAN, STD)
