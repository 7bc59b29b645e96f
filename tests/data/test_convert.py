"""Decoding every kind of image, and conversion of size and channels."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from PIL import Image

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.convert import convert, per_channel
from accord.data.decode import decode, decode_all
from accord.data.raw import Part, Raw
from imagefiles import request


def saved(picture: Image.Image, kind: str = "PNG", **options: Any) -> bytes:
    buffer = io.BytesIO()
    picture.save(buffer, kind, **options)
    return buffer.getvalue()


def test_decode_modes() -> None:
    grey, colour = make.pixels(2, 5, 4, 1)[0, ..., 0], make.pixels(1, 5, 4, 3)[0]
    sixteen = Image.fromarray(grey.astype(np.uint16) * 256 + 255)
    assert_array_equal(np.asarray(decode(saved(sixteen), "x")), grey)
    assert_array_equal(np.asarray(decode(saved(sixteen, "TIFF"), "x")), grey)
    black_white = Image.fromarray((grey > 99).astype(np.uint8) * 255).convert("1")
    assert_array_equal(np.asarray(decode(saved(black_white), "x")), (grey > 99) * 255)
    picture = Image.fromarray(colour)
    palette = picture.quantize(64)
    expected = np.asarray(palette.convert("RGB"))
    assert_array_equal(np.asarray(decode(saved(palette), "x")), expected)
    assert decode(saved(Image.fromarray(grey).convert("LA")), "x").mode == "L"
    assert decode(saved(picture.convert("CMYK"), "JPEG"), "x").mode == "RGB"


def test_what_is_transparent_becomes_white() -> None:
    colour = make.pixels(1, 5, 4, 3)[0]
    alpha = np.full((5, 4), 255, np.uint8)
    alpha[0] = 0
    picture = Image.fromarray(colour)
    picture.putalpha(Image.fromarray(alpha))
    expected = colour.copy()
    expected[0] = 255
    assert_array_equal(np.asarray(decode(saved(picture), "x")), expected)
    drawn = Image.new("LA", (3, 2), (0, 0))  # black ink, all of it transparent
    assert_array_equal(np.asarray(decode(saved(drawn), "x")), np.full((2, 3), 255))


def test_dark_16_bit_scans_are_refused_instead_of_learnt_as_black() -> None:
    scans = [Image.fromarray(np.full((4, 4), 4095 - i, np.uint16)) for i in range(3)]
    encoded = [(str(i), saved(scan)) for i, scan in enumerate(scans)]
    with pytest.raises(AccordError, match="brightest pixel is 4,095 of 65,535"):
        decode_all(encoded, 3, "train", request(size=None))
    bright = saved(Image.fromarray(np.full((4, 4), 60000, np.uint16)))
    images, _ = decode_all([*encoded, ("3", bright)], 4, "train", request(size=None))
    assert images[3].max() == 60000 >> 8


def test_decode_refuses_floats_and_other_formats() -> None:
    with pytest.raises(AccordError, match="found floats"):
        decode(saved(Image.fromarray(np.zeros((2, 2), np.float32)), "TIFF"), "x")
    with pytest.raises(AccordError, match="could not be decoded"):
        decode(saved(Image.new("RGB", (2, 2)), "EPS"), "x")


def test_decode_all_resizes_as_convert_does() -> None:
    images = make.pixels(3, 9, 7, 3)
    encoded = [(str(i), make.encode(image)) for i, image in enumerate(images)]
    small, found = decode_all(encoded, 3, "train", request(size=4))
    converted, _ = convert(Raw(Part(images, make.labels(3), (9, 7)), None), 4, None)
    assert found == (9, 7)
    assert_array_equal(small, converted.train.images)


def test_convert_tells_from_what_to_what() -> None:
    raw = Raw(Part(make.pixels(2, 28, 28, 1), make.labels(2), (28, 28)), None)
    converted, remarks = convert(raw, 32, 3)
    assert converted.train.images.shape == (2, 32, 32, 3)
    assert remarks == ("images converted from 28×28×1 to 32×32×3",)
    assert convert(raw, 28, 1)[1] == ()
    assert convert(raw, None, None)[0].train.images is raw.train.images


def test_convert_matches_pillow() -> None:
    images = make.pixels(3, 10, 8, 3)
    converted, _ = convert(Raw(Part(images, make.labels(3), (10, 8)), None), 5, 1)
    for image, ours in zip(images, converted.train.images, strict=True):
        small = Image.fromarray(image).resize((5, 5), Image.Resampling.BILINEAR)
        assert_array_equal(np.asarray(small.convert("L")), ours[..., 0])


def test_convert_brings_train_and_test_together() -> None:
    grey = Part(make.pixels(2, 6, 6, 1), make.labels(2), (6, 6))
    colour = Part(make.pixels(2, 6, 6, 3), make.labels(2), (6, 6))
    converted, remarks = convert(Raw(grey, colour), None, None)
    assert converted.train.images.shape == (2, 6, 6, 3)
    assert remarks == ("images converted from several shapes to 6×6×3",)
    other = Part(make.pixels(2, 7, 6, 1), make.labels(2), (7, 6))
    with pytest.raises(AccordError, match=r"train is 6×6, test is 7×6.*data.image"):
        convert(Raw(grey, other), None, None)


@pytest.mark.parametrize(("size", "channels"), [(0, None), (None, 2)])
def test_convert_refuses_nonsense(size: int | None, channels: int | None) -> None:
    with pytest.raises(AccordError, match="expected a size of 1 or more and 1 or 3 channels"):
        convert(Raw(Part(make.pixels(1, 2, 2, 1), make.labels(1), (2, 2)), None), size, channels)


def test_constants_follow_the_channels() -> None:
    assert per_channel((0.5,), 3) == (0.5, 0.5, 0.5)
    assert per_channel((0.25, 0.5, 0.75), 1) == (0.5,)
