"""idx and .mat files: exact pixels and labels, and a clear word on every bad input."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from scipy.io import savemat

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.formats import find_idx, find_svhn
from accord.data.raw import Source
from imagefiles import cut, held_out, read

DIGITS = tuple("0123456789")


def mnist(folder: Path) -> Source | None:
    return find_idx(folder, other=b"0123456789")


@pytest.mark.parametrize("packed", [True, False])
def test_idx(tmp_path: Path, packed: bool) -> None:
    arrays = make.write_idx_pair(tmp_path, packed)
    raw = read(mnist(tmp_path), classes=DIGITS)
    for part, images, labels in ((raw.train, *arrays[:2]), (held_out(raw), *arrays[2:])):
        assert_array_equal(part.images, images)
        assert_array_equal(part.labels, labels)
        assert part.labels.dtype == np.int64


def test_idx_with_a_dot_in_the_name(tmp_path: Path) -> None:
    make.write_idx_pair(tmp_path, packed=False)
    for path in list(tmp_path.glob("*-idx*")):
        path.rename(tmp_path / path.name.replace("-idx", ".idx"))
    assert len(read(mnist(tmp_path)).train.labels) == 6


def test_idx_incomplete_is_not_found(tmp_path: Path) -> None:
    make.write_idx_pair(tmp_path)
    (tmp_path / "t10k-labels-idx1-ubyte.gz").unlink()
    assert mnist(tmp_path) is None


def test_idx_of_the_namesake_is_not_found(tmp_path: Path) -> None:
    _, labels, _, _ = make.write_idx_pair(tmp_path)
    assert find_idx(tmp_path, other=labels.astype(np.uint8).tobytes()[:5]) is None


@pytest.mark.parametrize("name", ["train-images-idx3-ubyte.gz", "t10k-labels-idx1-ubyte.gz"])
def test_idx_truncated(tmp_path: Path, name: str) -> None:
    make.write_idx_pair(tmp_path)
    cut(tmp_path / name)
    with pytest.raises(AccordError, match=rf"{name}.*if it is damaged, get it again"):
        read(mnist(tmp_path))


def test_idx_shorter_than_its_header_says(tmp_path: Path) -> None:
    make.write_idx_pair(tmp_path, packed=False)
    cut(tmp_path / "train-images-idx3-ubyte")
    with pytest.raises(AccordError, match=r"promises shape \(6, 5, 4\)"):
        read(mnist(tmp_path))


@pytest.mark.parametrize("content", [b"", b"\0\0\x08\x03\0\0", b"<html>not found</html>"])
def test_idx_that_is_something_else(tmp_path: Path, content: bytes) -> None:
    make.write_idx_pair(tmp_path)
    (tmp_path / "train-images-idx3-ubyte.gz").write_bytes(gzip.compress(content))
    with pytest.raises(AccordError, match="the file cannot be read"):
        read(mnist(tmp_path))


def test_idx_counts_differ(tmp_path: Path) -> None:
    make.write_idx_pair(tmp_path)
    make.write_idx(tmp_path / "other", "train", make.pixels(4, 5, 4, 1), make.labels(4))
    (tmp_path / "other/train-labels-idx1-ubyte.gz").replace(tmp_path / "train-labels-idx1-ubyte.gz")
    with pytest.raises(AccordError, match="6 images but 4 labels"):
        read(mnist(tmp_path))


def test_idx_label_out_of_range(tmp_path: Path) -> None:
    make.write_idx_pair(tmp_path)
    make.write_idx(tmp_path, "train", make.pixels(3, 5, 4, 1), np.array([0, 9, 10]))
    with pytest.raises(AccordError, match=r"train-labels.*row 2 has label 10; expected 0 to 9"):
        read(mnist(tmp_path), classes=DIGITS)


def write_svhn(folder: Path, labels: list[int]) -> np.ndarray[Any, np.dtype[np.uint8]]:
    images = make.pixels(len(labels), 32, 32, 3)
    for part in ("train", "test"):
        content = {"X": images.transpose(1, 2, 3, 0), "y": np.array(labels, np.uint8)[:, None]}
        savemat(folder / f"{part}_32x32.mat", content, do_compression=True)
    return images


def test_svhn_label_ten_is_digit_zero(tmp_path: Path) -> None:
    images = write_svhn(tmp_path, [1, 10, 9])
    raw = read(find_svhn(tmp_path), classes=DIGITS)
    assert_array_equal(raw.train.images, images)
    assert raw.train.labels.tolist() == [1, 0, 9]
    assert held_out(raw).labels.tolist() == [1, 0, 9]


@pytest.mark.parametrize("wrong", [0, 11])
def test_svhn_label_out_of_range(tmp_path: Path, wrong: int) -> None:
    write_svhn(tmp_path, [1, wrong])
    with pytest.raises(AccordError, match=r"train_32x32.mat: row 1"):
        read(find_svhn(tmp_path), classes=DIGITS)


@pytest.mark.parametrize("share", [0.0, 0.001, 0.01, 0.5, 0.99])
def test_svhn_truncated(tmp_path: Path, share: float) -> None:
    write_svhn(tmp_path, [1, 2])
    cut(tmp_path / "test_32x32.mat", share)
    with pytest.raises(AccordError, match=r"test_32x32.mat.*damaged"):
        read(find_svhn(tmp_path), classes=DIGITS)
