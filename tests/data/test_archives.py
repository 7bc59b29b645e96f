"""CIFAR archives: exact pixels and labels, and no pickle that does more than hold arrays."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.archives import find_cifar10, find_cifar100
from imagefiles import cut, held_out, read

DIGITS = tuple("0123456789")


@pytest.mark.parametrize("write", [make.python2_batch, make.python3_batch])
@pytest.mark.parametrize("layout", ["tar", "unpacked", "direct"])
def test_cifar10(tmp_path: Path, write: Any, layout: str) -> None:
    batches, images, labels = make.cifar10_batches(write)
    if layout == "tar":
        make.write_tar(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", batches)
    else:
        make.write_files(tmp_path / ("cifar-10-batches-py" * (layout == "unpacked")), batches)
    raw = read(find_cifar10(tmp_path))
    assert_array_equal(raw.train.images, images[:10])
    assert_array_equal(raw.train.labels, labels[:10])
    assert_array_equal(held_out(raw).images, images[10:])
    assert_array_equal(held_out(raw).labels, labels[10:])


def test_cifar100_takes_the_fine_labels(tmp_path: Path) -> None:
    images = make.pixels(5, 32, 32, 3)
    files = {}
    for name, rows in (("train", slice(0, 3)), ("test", slice(3, 5))):
        count = len(images[rows])
        fields = {"fine_labels": range(90, 90 + count), "coarse_labels": range(count)}
        files[name] = make.python2_batch(make.flat(images[rows]), fields)
    make.write_tar(tmp_path / "cifar-100-python.tar.gz", "cifar-100-python", files)
    raw = read(find_cifar100(tmp_path))
    assert raw.train.labels.tolist() == [90, 91, 92]
    assert raw.train.columns["coarse_label"].tolist() == ["0", "1", "2"]
    assert_array_equal(held_out(raw).images, images[3:])


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, protocol: int) -> None:
    batches, _, _ = make.cifar10_batches()
    mark = tmp_path / "was-run"
    batches["data_batch_3"] = pickle.dumps({"data": make.Attack(mark)}, protocol)
    make.write_files(tmp_path / "cifar-10-batches-py", batches)
    with pytest.raises(AccordError, match=r"data_batch_3.*asks for (posix|os)\.system.*refused"):
        read(find_cifar10(tmp_path))
    assert not mark.exists()


@pytest.mark.parametrize(
    "asked",
    [
        b"cbuiltins\neval\n.",
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"cnumpy\ndtype\n(U\1Oltr.".replace(b"ltr", b"tR"),
        b"c_codecs\nencode\n(X\1\0\0\0aX\3\0\0\0zip" + b"tR.",
    ],
)
def test_a_pickle_that_names_anything_else_is_refused(tmp_path: Path, asked: bytes) -> None:
    batches, _, _ = make.cifar10_batches()
    make.write_files(tmp_path, {**batches, "test_batch": asked})
    with pytest.raises(AccordError, match=r"test_batch.*refused"):
        read(find_cifar10(tmp_path))


def test_cifar_truncated_archive(tmp_path: Path) -> None:
    batches, _, _ = make.cifar10_batches()
    path = tmp_path / "cifar-10-python.tar.gz"
    make.write_tar(path, "cifar-10-batches-py", batches)
    cut(path)
    with pytest.raises(AccordError, match=r"cifar-10-python.tar.gz.*damaged"):
        read(find_cifar10(tmp_path))


def test_cifar_archive_without_a_batch(tmp_path: Path) -> None:
    batches, _, _ = make.cifar10_batches()
    del batches["data_batch_4"]
    make.write_tar(tmp_path / "cifar-10-python.tar.gz", "cifar-10-batches-py", batches)
    with pytest.raises(AccordError, match="it does not contain data_batch_4"):
        read(find_cifar10(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x02}(U\4data", "damaged"),
        (b"", "damaged"),
        (pickle.dumps([1], 2), "expected a dictionary"),
        (pickle.dumps({"data": 3}, 2), "3072 columns"),
        (make.python3_batch(np.zeros((1, 3072), np.uint8), {"labels": ["a"]}), "list of whole"),
        (make.python3_batch(np.zeros((1, 9), np.uint8), {"labels": [1]}), "3072 columns"),
        (make.python2_batch(np.zeros((2, 3072), np.uint8), {"labels": [1]}), "2 images but 1 lab"),
        (make.python2_batch(np.zeros((2, 3072), np.uint8), {}), "2 images but 0 labels"),
        (make.python2_batch(np.zeros((1, 3072), np.uint8), {"labels": [-1]}), "row 0 has label -1"),
    ],
)
def test_cifar_damaged_batch(tmp_path: Path, content: bytes, said: str) -> None:
    batches, _, _ = make.cifar10_batches()
    make.write_files(tmp_path, {**batches, "data_batch_2": content})
    with pytest.raises(AccordError, match=rf"data_batch_2.*{said}"):
        read(find_cifar10(tmp_path), classes=DIGITS)
