"""Shifts: deterministic changes of a client's images and labels, of the stated strength."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from kornia.filters import gaussian_blur2d
from kornia.geometry import rotate

from accord.core.errors import AccordError
from accord.core.randomness import numpy_generator
from accord.data.images import Bytes, Labels
from accord.data.imageset import ImageSet
from accord.data.settings import ShiftConfig
from accord.data.shifted import IMAGES, known_labels, shifts_of, with_wrong
from accord.data.shifted import seen as seen_by
from accord.data.shifts import Holder, shifts
from accord.data.shifts.blur import blurred
from accord.data.shifts.colour import recoloured
from accord.data.shifts.noise import with_grain
from accord.data.shifts.rotation import rotated
from core.cases import looped

EVERY = shifts.names()
STRENGTHS = {"rotation": 40.0, "blur": 1.5, "colour": 0.5, "noise": 0.2}
ALL = ShiftConfig(**STRENGTHS)

sizes = st.tuples(
    st.integers(1, 5), st.integers(8, 20), st.integers(8, 20), st.sampled_from([1, 3])
)


def pictures(*shape: int, seed: int = 0) -> Bytes:
    return numpy_generator(seed, "pictures").integers(0, 256, shape, dtype=np.uint8)


def smooth(*shape: int) -> Bytes:
    """Images in which neighbouring pixels are similar, as in photographs."""
    return blurred(pictures(*shape), 2.0)


def data_of(images: Bytes, rows: list[int] | None = None) -> ImageSet:
    chosen = np.arange(len(images)) if rows is None else np.array(rows)
    return ImageSet(images, chosen, np.zeros(len(chosen), dtype=np.int64))


def seen(images: Bytes, shift: ShiftConfig, holder: Holder, rows: list[int] | None = None) -> Bytes:
    """The images as one site sees them all."""
    data = data_of(images, rows)
    sites = np.full(len(data), holder.index)
    found = seen_by(data, shift, holder.seed, sites, holder.clients)
    return found.batch(torch.arange(len(found))).numpy()


def told(labels: Labels, shift: ShiftConfig, holder: Holder) -> Labels:
    """The labels as one site knows them all."""
    sites = np.full(len(labels), holder.index)
    return known_labels(labels, 5, shift, holder.seed, sites, holder.clients)


def test_each_shift_has_a_key_and_a_test() -> None:
    assert sorted(STRENGTHS) == EVERY == sorted(ALL.of_images)
    assert sorted(ShiftConfig.model_fields) == sorted([*EVERY, "scale", "labels", "labels_at"])


# --- what every shift does -----------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(shape=sizes, seed=st.integers(0, 99), clients=st.integers(1, 6))
def test_shape_and_type_stay_and_no_strength_is_the_identity(
    shape: tuple[int, int, int, int], seed: int, clients: int
) -> None:
    images = pictures(*shape, seed=seed)
    before = images.copy()
    holder = Holder(seed, clients - 1, clients)
    for shift in (ALL, *(ShiftConfig(**{name: STRENGTHS[name]}) for name in EVERY)):
        found = seen(images, shift, holder)
        assert found.shape == images.shape
        assert found.dtype == np.uint8
    np.testing.assert_array_equal(images, before)  # the dataset itself is never changed
    untouched = data_of(images)
    nowhere = np.zeros(len(images), np.int64)
    for shift in (ShiftConfig(labels=0.5), ALL.model_copy(update={"scale": 0.0})):
        assert seen_by(untouched, shift, seed, nowhere, clients) is untouched
    np.testing.assert_array_equal(rotated(images, 0.0), images)
    np.testing.assert_array_equal(blurred(images, 0.0), images)
    np.testing.assert_array_equal(recoloured(images, [1.0] * 3, [0.0] * 3), images)
    np.testing.assert_array_equal(with_grain(images, np.ones(shape, np.float32), 0.0), images)


@looped("name", EVERY)
def test_a_client_has_its_own_values_for_ever(name: str) -> None:
    shift = ShiftConfig(**{name: STRENGTHS[name]})
    images = pictures(6, 12, 12, 3)
    values = {shifts_of(shift, Holder(0, k, 5))[0].values for k in range(5)}
    assert len(values) == 5
    once, twice = ([seen(images, shift, Holder(0, k, 5)) for k in range(5)] for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    assert len({found.tobytes() for found in once}) == 5
    orders = {tuple(Holder(seed, k, 5).level(name) for k in range(5)) for seed in range(20)}
    assert len(orders) > 10


@looped("name", EVERY)
def test_an_image_changes_alike_in_any_company(name: str) -> None:
    """Alone, in another order, and across the blocks in which images are processed."""
    shift, holder = ShiftConfig(**{name: STRENGTHS[name]}), Holder(3, 1, 4)
    images = smooth(IMAGES + 3, 8, 8, 1)
    whole = seen(images, shift, holder)
    rows = [IMAGES + 2, 5, IMAGES - 1, IMAGES]
    np.testing.assert_array_equal(seen(images, shift, holder, rows), whole[rows])
    np.testing.assert_array_equal(seen(images, shift, holder, [5])[0], whole[5])


def test_the_changes_follow_one_another_in_the_order_of_the_keys() -> None:
    images, holder = smooth(3, 10, 10, 3), Holder(0, 2, 4)
    step = images
    for name in ("rotation", "blur", "colour", "noise"):
        step = seen(step, ShiftConfig(**{name: STRENGTHS[name]}), holder)
    np.testing.assert_array_equal(seen(images, ALL, holder), step)


@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 999), clients=st.integers(2, 12))
def test_the_levels_of_all_clients_are_evenly_spaced(seed: int, clients: int) -> None:
    holders = [Holder(seed, k, clients) for k in range(clients)]
    levels = sorted(holder.level("rotation") for holder in holders)
    np.testing.assert_allclose(levels, np.linspace(-1, 1, clients), atol=1e-12)
    amounts = sorted(holder.amount("blur") for holder in holders)
    np.testing.assert_allclose(amounts, np.linspace(0, 1, clients), atol=1e-12)


def test_the_values_of_each_shift() -> None:
    for k in range(3):
        holder = Holder(7, k, 3)
        found = {type(one).__name__: one.values for one in shifts_of(ALL, holder)}
        assert found["Rotation"] == (40 * holder.level("rotation"),)
        assert found["Blur"] == (1.5 * (1 + holder.level("blur")) / 2,)
        assert found["Noise"] == (0.2 * (1 + holder.level("noise")) / 2,)
        contrast, brightness = found["Colour"][:3], found["Colour"][3:]
        levels = [holder.level(f"colour-contrast-{c}") for c in range(3)]
        np.testing.assert_allclose(contrast, np.exp2(0.5 * np.array(levels)))
        levels = [holder.level(f"colour-brightness-{c}") for c in range(3)]
        np.testing.assert_allclose(brightness, np.array(levels) / 4)
    assert shifts_of(ShiftConfig(rotation=9), Holder(0, 0, 1))[0].values == (9.0,)


def test_pooled_images_and_labels_are_those_of_their_sites() -> None:
    """Each image is seen as its own site sees it, and an image of no site is not changed."""
    images, sites = smooth(40, 8, 8, 3), numpy_generator(0, "sites").integers(-1, 3, 40)
    labels = numpy_generator(0, "labels").integers(0, 5, 40)
    shift = ALL.model_copy(update={"labels": 0.5})
    found = seen_by(data_of(images), shift, 4, sites, 3).batch(torch.arange(40)).numpy()
    known = known_labels(labels, 5, shift, 4, sites, 3)
    for site in range(3):
        mine, holder = np.flatnonzero(sites == site), Holder(4, site, 3)
        np.testing.assert_array_equal(found[mine], seen(images, ALL, holder, mine.tolist()))
        np.testing.assert_array_equal(known[mine], told(labels[mine], shift, holder))
    unknown = sites == -1
    np.testing.assert_array_equal(found[unknown], images[unknown])
    np.testing.assert_array_equal(known[unknown], labels[unknown])


def test_one_factor_scales_all_strengths() -> None:
    half = {name: strength / 2 for name, strength in STRENGTHS.items()}
    assert ALL.model_copy(update={"scale": 0.5}).of_images == half
    assert ALL.model_copy(update={"scale": 0.0}).changes_nothing
    assert not ShiftConfig(labels=0.1).changes_nothing


# --- each change by itself -----------------------------------------------------------------------


@settings(max_examples=25, deadline=None)
@given(
    size=st.integers(1, 17),
    channels=st.sampled_from([1, 3]),
    turns=st.integers(-4, 4),
    seed=st.integers(0, 99),
)
def test_quarter_turns_are_exact(size: int, channels: int, turns: int, seed: int) -> None:
    images = pictures(2, size, size, channels, seed=seed)
    expected = np.rot90(images, turns, axes=(1, 2))
    np.testing.assert_array_equal(rotated(images, 90.0 * turns), expected)


def test_rotation_is_that_of_another_library_away_from_the_border() -> None:
    images = smooth(2, 33, 33, 3)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    for degrees in (17.0, -40.0):
        expected = rotate(planes, torch.tensor([degrees] * 2)).permute(0, 2, 3, 1).numpy()
        inside = np.s_[:, 10:-10, 10:-10]
        found = rotated(images, degrees).astype(float)
        np.testing.assert_allclose(found[inside], expected[inside], atol=0.51)


def test_outside_of_a_rotated_image_is_its_mirror_image() -> None:
    assert rotated(np.full((1, 9, 9, 1), 200, dtype=np.uint8), 45.0).min() == 200


@settings(max_examples=25, deadline=None)
@given(shape=sizes, value=st.integers(0, 255), pixels=st.floats(0.1, 30))
def test_blur_keeps_a_constant_image(
    shape: tuple[int, int, int, int], value: int, pixels: float
) -> None:
    images = np.full(shape, value, dtype=np.uint8)
    np.testing.assert_array_equal(blurred(images, pixels), images)


def test_blur_is_that_of_another_library_away_from_the_border() -> None:
    images = pictures(2, 32, 32, 3)
    planes = torch.from_numpy(images).permute(0, 3, 1, 2).float()
    expected = gaussian_blur2d(planes, (13, 13), (1.5, 1.5)).permute(0, 2, 3, 1).numpy()
    inside = np.s_[:, 6:-6, 6:-6]
    found = blurred(images, 1.5).astype(float)
    np.testing.assert_allclose(found[inside], expected[inside], atol=0.51)


def test_contrast_and_brightness_by_hand() -> None:
    image = np.array([[[[0, 51, 102], [153, 204, 255]]]], dtype=np.uint8)
    found = recoloured(image, [2.0, 1.0, 0.5], [0.0, 0.1, -0.2])
    # x → ½ + 2(x − ½), x + 0.1 and ½ + (x − ½)/2 − 0.2, for x = 0, 0.2, … 1
    expected = 255 * np.array([[[[0, 0.3, 0.25], [0.7, 0.9, 0.55]]]])
    np.testing.assert_allclose(found, expected, atol=0.51)
    grey = recoloured(image[..., :1], [2.0, 1.0, 0.5], [0.0, 0.1, -0.2])
    np.testing.assert_array_equal(grey, found[..., :1])


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 999), strength=st.floats(0.01, 0.15))
def test_noise_has_the_stated_deviation(seed: int, strength: float) -> None:
    images = np.full((20, 16, 16, 3), 128, dtype=np.uint8)  # ±3.3 standard deviations are not cut
    holder = Holder(seed, 0, 1)
    found = seen(images, ShiftConfig(noise=strength), holder).astype(float) - 128
    rounding = 1 / 12
    assert found.std() == pytest.approx(np.sqrt((255 * strength) ** 2 + rounding), rel=0.03)
    assert abs(found.mean()) < 4 * 255 * strength / np.sqrt(found.size) + 0.01
    assert len({image.tobytes() for image in found}) == len(images)  # each image has its own


def test_noise_differs_between_clients_and_seeds() -> None:
    images, shift = np.full((1, 8, 8, 1), 128, dtype=np.uint8), ShiftConfig(noise=0.1)
    alone = {seen(images, shift, Holder(seed, 0, 1)).tobytes() for seed in range(5)}
    assert len(alone) == 5
    two = [seen(images, shift, Holder(0, k, 2)) for k in range(2)]
    assert sorted(int((one != 128).sum()) > 0 for one in two) == [False, True]  # none, and all


# --- labels --------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    count=st.integers(0, 60),
    classes=st.integers(2, 7),
    share=st.floats(0, 0.99),
    seed=st.integers(0, 999),
)
def test_the_stated_share_of_labels_is_wrong(
    count: int, classes: int, share: float, seed: int
) -> None:
    labels = numpy_generator(seed, "labels").integers(0, classes, count)
    found = with_wrong(labels, classes, share, numpy_generator(seed, "wrong"))
    assert (found != labels).sum() == round(share * count)
    assert found.dtype == labels.dtype
    assert ((found >= 0) & (found < classes)).all()


def test_wrong_labels_are_spread_over_all_other_classes() -> None:
    labels = np.repeat(np.arange(4), 3000)
    found = with_wrong(labels, 4, 0.5, numpy_generator(0, "wrong"))
    table = np.zeros((4, 4), dtype=int)
    np.add.at(table, (labels, found), 1)
    assert np.abs(np.diag(table) - 1500).max() < 150
    assert np.abs(table[~np.eye(4, dtype=bool)] - 500).max() < 100


def test_only_some_clients_have_wrong_labels() -> None:
    labels = np.repeat(np.arange(5), 40)
    for share, expected in ((1.0, 5), (0.6, 3), (0.4, 2), (0.01, 1)):
        shift = ShiftConfig(labels=0.25, labels_at=share)
        found = [told(labels, shift, Holder(0, k, 5)) for k in range(5)]
        wrong = [int((one != labels).sum()) for one in found]
        assert sorted(wrong) == [0] * (5 - expected) + [50] * expected
        again = [told(labels, shift, Holder(0, k, 5)) for k in range(5)]
        np.testing.assert_array_equal(found, again)
    assert len({one.tobytes() for one in found if (one != labels).any()}) == 1
    everywhere = [told(labels, ShiftConfig(labels=0.25), Holder(0, k, 5)) for k in (0, 1)]
    assert (everywhere[0] != everywhere[1]).any()
    assert told(labels, ShiftConfig(), Holder(0, 0, 5)) is labels


def test_one_class_has_no_wrong_labels() -> None:
    with pytest.raises(AccordError, match="needs another class"):
        with_wrong(np.zeros(4, dtype=np.int64), 1, 0.5, numpy_generator(0, "wrong"))
