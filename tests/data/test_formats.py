"""Every reader on tiny real files: exact pixels and labels, and a clear word on every bad input."""

from __future__ import annotations

import gzip
import io
import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import imagefiles as make
import numpy as np
import pyarrow.parquet as pq
import pytest
from imagefiles import request
from numpy.testing import assert_array_equal
from PIL import Image
from scipy.io import savemat

from accord.data.archives import find_cifar10, find_cifar100
from accord.data.convert import convert, per_channel
from accord.data.decode import decode, decode_all
from accord.data.folders import find_folder, find_tiny_imagenet
from accord.data.formats import find_idx, find_svhn
from accord.data.npz import find_npz
from accord.data.parquet import find_pair, find_parquet
from accord.data.raw import Part, Raw, Source
from accord.errors import AccordError

DIGITS = tuple("0123456789")


def read(source: Source | None, **wishes: Any) -> Raw:
    assert source is not None
    return source.read(request(**wishes))


def mnist(folder: Path) -> Source | None:
    return find_idx(folder, other=b"0123456789")


def test_part(raw: Raw) -> Part:
    assert raw.test is not None
    return raw.test


test_part.__test__ = False  # type: ignore[attr-defined]


def cut(path: Path, share: float = 0.5) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


# idx ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("packed", [True, False])
def test_idx(tmp_path: Path, packed: bool) -> None:
    arrays = make.write_idx_pair(tmp_path, packed)
    raw = read(mnist(tmp_path), classes=DIGITS)
    for part, images, labels in ((raw.train, *arrays[:2]), (test_part(raw), *arrays[2:])):
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
    with pytest.raises(AccordError, match=rf"{name}.*damaged.*fetch it again"):
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
    with pytest.raises(AccordError, match="damaged or incomplete"):
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


# CIFAR -------------------------------------------------------------------------------------------


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
    assert_array_equal(test_part(raw).images, images[10:])
    assert_array_equal(test_part(raw).labels, labels[10:])


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
    assert_array_equal(test_part(raw).images, images[3:])


class Attack:
    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_runs_code_is_refused(tmp_path: Path, protocol: int) -> None:
    batches, _, _ = make.cifar10_batches()
    mark = tmp_path / "was-run"
    batches["data_batch_3"] = pickle.dumps({"data": Attack(mark)}, protocol)
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
    with pytest.raises(AccordError, match="data_batch_4 not inside"):
        read(find_cifar10(tmp_path))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"\x80\x02}(U\4data", "damaged"),
        (b"", "damaged"),
        (pickle.dumps([1], 2), "expected a dictionary"),
        (pickle.dumps({"data": 3}, 2), "3072 columns"),
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


# SVHN --------------------------------------------------------------------------------------------


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
    assert test_part(raw).labels.tolist() == [1, 0, 9]


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


# Folders -----------------------------------------------------------------------------------------


def write_class_folders(folder: Path, classes: tuple[str, ...], channels: int = 3) -> Any:
    images = make.pixels(2 * len(classes), 6, 5, channels)
    for i, image in enumerate(images):
        make.save_image(folder / classes[i // 2] / f"{i}.png", image)
    return images


@pytest.mark.parametrize("test_name", ["test", "val", "valid", "validation"])
def test_folder_with_train_and_test(tmp_path: Path, test_name: str) -> None:
    train = write_class_folders(tmp_path / "train", ("cat", "dog"))
    test = write_class_folders(tmp_path / test_name, ("dog",))
    raw = read(find_folder(tmp_path))
    assert raw.classes == ("cat", "dog")
    assert_array_equal(raw.train.images, train)
    assert raw.train.labels.tolist() == [0, 0, 1, 1]
    assert_array_equal(test_part(raw).images, test[:2])
    assert test_part(raw).labels.tolist() == [1, 1]


def test_folder_as_one_set_where_a_class_is_called_train(tmp_path: Path) -> None:
    write_class_folders(tmp_path, ("bus", "car", "train"))
    raw = read(find_folder(tmp_path))
    assert raw.classes == ("bus", "car", "train")
    assert raw.test is None


def test_folder_tells_what_it_leaves_out(tmp_path: Path) -> None:
    for part in ("train", "test", "val"):
        write_class_folders(tmp_path / part, ("a", "b"))
    (tmp_path / "train/a/notes.txt").write_text("x")
    told: list[str] = []
    read(find_folder(tmp_path), tell=told.append)
    assert any("val not used" in line for line in told)
    assert any("1 files that are not images" in line for line in told)


def test_folder_grey_stays_grey_until_a_colour_image_comes(tmp_path: Path) -> None:
    grey = write_class_folders(tmp_path, ("a", "b"), channels=1)
    assert read(find_folder(tmp_path)).train.images.shape == (4, 6, 5, 1)
    make.save_image(tmp_path / "b/z.png", make.pixels(1, 6, 5, 3)[0])
    mixed = read(find_folder(tmp_path)).train.images
    assert mixed.shape == (5, 6, 5, 3)
    assert_array_equal(mixed[:4], np.repeat(grey, 3, axis=-1))


def test_folder_of_several_sizes(tmp_path: Path) -> None:
    write_class_folders(tmp_path, ("a", "b"))
    make.save_image(tmp_path / "b/z.png", make.pixels(1, 7, 9, 3)[0])
    with pytest.raises(AccordError, match=r"is 6×5, .*z.png is 7×9\. Set `data.image`"):
        read(find_folder(tmp_path))
    raw = read(find_folder(tmp_path), size=8)
    assert raw.train.images.shape == (5, 8, 8, 3)
    assert raw.train.found is None


def test_folder_mistakes(tmp_path: Path) -> None:
    write_class_folders(tmp_path / "train", ("a", "b"))
    write_class_folders(tmp_path / "test", ("a", "c"))
    with pytest.raises(AccordError, match=r"test/c.*not among those of train \(a, b\)"):
        read(find_folder(tmp_path))
    (tmp_path / "train/empty").mkdir()
    with pytest.raises(AccordError, match=r"train/empty: expected images .* found none"):
        read(find_folder(tmp_path))
    (tmp_path / "alone/only").mkdir(parents=True)
    with pytest.raises(AccordError, match="a folder per class, two or more; found 1"):
        read(find_folder(tmp_path / "alone"))


def test_folder_truncated_image(tmp_path: Path) -> None:
    write_class_folders(tmp_path, ("a", "b"))
    cut(tmp_path / "b/3.png", 0.7)
    with pytest.raises(AccordError, match=r"b/3.png.*could not be decoded.*Replace or remove"):
        read(find_folder(tmp_path))


def write_tiny(place: Path) -> None:
    for wnid in ("n02", "n01", "n03"):
        image = np.full((4, 4, 3), int(wnid[1:]) * 10, np.uint8)
        make.save_image(place / f"train/{wnid}/images/{wnid}_0.JPEG", image)
        (place / f"train/{wnid}/{wnid}_boxes.txt").write_text("x")
        make.save_image(place / f"val/images/val_{wnid}.JPEG", image)
    rows = [f"val_{wnid}.JPEG\t{wnid}\t0\t0\t1\t1" for wnid in ("n03", "n01", "n02")]
    (place / "val/val_annotations.txt").write_text("\n".join(rows) + "\n")
    (place / "words.txt").write_text("n00\tthing\nn01\tcrane, bird\nn02\tgoldfish\nn03\tcrane\n")


@pytest.mark.parametrize("below", ["", "tiny-imagenet-200"])
def test_tiny_imagenet(tmp_path: Path, below: str) -> None:
    write_tiny(tmp_path / below)
    told: list[str] = []
    raw = read(find_tiny_imagenet(tmp_path), tell=told.append)
    assert raw.classes == ("crane (n01)", "goldfish", "crane (n03)")
    assert raw.train.labels.tolist() == [0, 1, 2]
    assert raw.train.images[:, 0, 0, 0].tolist() == [10, 20, 30]
    assert test_part(raw).labels.tolist() == [2, 0, 1]
    assert test_part(raw).images[:, 0, 0, 0].tolist() == [30, 10, 20]
    assert told == []


def test_tiny_imagenet_damaged(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    with (tmp_path / "val/val_annotations.txt").open("a") as file:
        file.write("val_n01.JPEG\tn99\n")
    with pytest.raises(AccordError, match="val_annotations.txt.*line 4 names class 'n99'"):
        read(find_tiny_imagenet(tmp_path))
    (tmp_path / "words.txt").write_text("n01\tcrane\n")
    (tmp_path / "val/val_annotations.txt").write_text("val_n01.JPEG\tn01\n")
    with pytest.raises(AccordError, match="words.txt.*no words for class n02"):
        read(find_tiny_imagenet(tmp_path))


# npz ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "keys",
    [
        ("x_train", "y_train", "x_test", "y_test"),
        ("train_images", "train_labels", "test_images", "test_labels"),
    ],
)
def test_npz_with_train_and_test(tmp_path: Path, keys: tuple[str, ...]) -> None:
    train, test = make.pixels(4, 5, 6, 3), make.pixels(2, 5, 6, 3, 1)
    arrays = (train, np.array([[0], [1], [2], [1]], np.uint8), test, np.array([2, 0]))
    path = make.save_npz(
        tmp_path / "a.npz",
        **dict(zip(keys, arrays, strict=True)),
        classes=["x", "y", "z"],
        site=["p", "p", "q", "q"],
        test_site=np.array([7, 8]),
        val_images=np.zeros((4, 5, 6, 3), np.uint8),
        val_labels=np.zeros((4, 1), np.uint8),
    )
    raw = read(find_npz(path))
    assert_array_equal(raw.train.images, train)
    assert raw.train.labels.tolist() == [0, 1, 2, 1]
    assert_array_equal(test_part(raw).images, test)
    assert raw.classes == ("x", "y", "z")
    assert {k: v.tolist() for k, v in raw.train.columns.items()} == {"site": ["p", "p", "q", "q"]}
    assert {k: v.tolist() for k, v in test_part(raw).columns.items()} == {"site": ["7", "8"]}


@pytest.mark.parametrize("keys", [("images", "labels"), ("x", "y")])
def test_npz_one_set_of_grey_images(tmp_path: Path, keys: tuple[str, str]) -> None:
    images = make.pixels(3, 5, 6, 1)
    arrays = {keys[0]: images[..., 0].astype(np.float32), keys[1]: np.array([0, 1, 0])}
    raw = read(
        find_npz(make.save_npz(tmp_path / "a.npz", **arrays, site=np.array([b"u", b"v", b"w"])))
    )
    assert_array_equal(raw.train.images, images)
    assert raw.test is None
    assert raw.train.columns["site"].tolist() == ["u", "v", "w"]


def test_npz_folder(tmp_path: Path) -> None:
    for seed, part in enumerate(("train", "test")):
        images = make.pixels(3, 5, 6, 1, seed)
        make.save_npz(tmp_path / f"{part}.npz", images=images, labels=np.arange(3))
    raw = read(find_npz(tmp_path))
    assert_array_equal(test_part(raw).images, make.pixels(3, 5, 6, 1, 1))


def bad_npz() -> dict[str, tuple[dict[str, Any], str]]:
    images, labels = make.pixels(3, 4, 4, 3), np.array([0, 1, 2])
    return {
        "fractions": ({"images": images / 255, "labels": labels}, "found float64 from 0.*uint8"),
        "nan": ({"images": images * np.nan, "labels": labels}, "found float64"),
        "negative pixels": ({"images": images.astype(int) - 300, "labels": labels}, "int64 from -"),
        "channels first": (
            {"images": images.transpose(0, 3, 1, 2), "labels": labels},
            "channels l",
        ),
        "flat": ({"images": images.reshape(3, -1), "labels": labels}, r"found \(3, 48\)"),
        "no images": ({"images": images[:0], "labels": labels[:0]}, "holds no images"),
        "counts": ({"images": images, "labels": labels[:2]}, "3 images but 2 labels"),
        "one-hot": ({"images": images, "labels": np.eye(3)}, "argmax"),
        "text labels": ({"images": images, "labels": ["a", "b", "c"]}, "whole numbers"),
        "negative label": ({"images": images, "labels": labels - 1}, "row 0 has label -1"),
        "label": ({"images": images, "labels": labels, "classes": ["a", "b"]}, "row 2 has label 2"),
        "keys": ({"pictures": images, "labels": labels}, "found labels, pictures"),
        "ambiguous": (
            dict(x_train=images, y_train=labels, x_test=images, y_test=labels, site=labels),
            "site_train or site_test",
        ),
    }


@pytest.mark.parametrize("case", bad_npz())
def test_npz_mistakes(tmp_path: Path, case: str) -> None:
    arrays, said = bad_npz()[case]
    path = make.save_npz(tmp_path / "bad.npz", **arrays)
    with pytest.raises(AccordError, match=rf"bad.npz: .*{said}"):
        read(find_npz(path))


def test_npz_is_never_unpickled(tmp_path: Path) -> None:
    arrays = {"images": make.pixels(1, 4, 4, 3), "labels": np.array([Attack(tmp_path / "was-run")])}
    np.savez(tmp_path / "a.npz", allow_pickle=True, **arrays)
    with pytest.raises(AccordError, match="'labels' holds Python objects"):
        read(find_npz(tmp_path / "a.npz"))
    assert not (tmp_path / "was-run").exists()


def test_npz_damaged_or_no_npz(tmp_path: Path) -> None:
    path = make.save_npz(tmp_path / "a.npz", images=make.pixels(3, 4, 4, 3), labels=np.arange(3))
    cut(path, 0.9)
    with pytest.raises(AccordError, match=r"a.npz.*damaged"):
        read(find_npz(path))
    np.save(tmp_path / "b.npy", np.zeros(3))
    with pytest.raises(AccordError, match="found a single array"):
        read(find_npz(tmp_path / "b.npy"))


# Parquet -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_parquet_shards_with_the_hubs_metadata(tmp_path: Path, kind: str) -> None:
    images, labels = make.pixels(7, 5, 6, 3), np.array([0, 2, 1, 0, 2, 1, 0])
    options: dict[str, Any] = {"kind": kind, "names": ["a", "b", "c"]}
    for i, rows in enumerate((slice(0, 3), slice(3, 5))):
        path = tmp_path / f"data/train-0000{i}-of-00002.parquet"
        columns = {"site": [f"s{i}"] * len(labels[rows]), "age": labels[rows].tolist()}
        make.write_parquet(path, images[rows], labels[rows], columns=columns, **options)
    make.write_parquet(tmp_path / "data/validation-0.parquet", images[5:], labels[5:], **options)
    raw = read(find_parquet(tmp_path))
    assert raw.classes == ("a", "b", "c")
    assert_array_equal(raw.train.images, images[:5])
    assert_array_equal(raw.train.labels, labels[:5])
    assert raw.train.columns["site"].tolist() == ["s0", "s0", "s0", "s1", "s1"]
    assert raw.train.columns["age"].tolist() == ["0", "2", "1", "0", "2"]
    assert_array_equal(test_part(raw).images, images[5:])


def test_parquet_of_cifar100_on_the_hub(tmp_path: Path) -> None:
    images = make.pixels(2, 4, 4, 3)
    path = tmp_path / "cifar100/train-00000-of-00001.parquet"
    make.write_parquet(
        path, images, [5, 6], image="img", label="fine_label", columns={"coarse_label": [1, 2]}
    )
    raw = read(find_parquet(tmp_path))
    assert raw.classes is None
    assert raw.train.labels.tolist() == [5, 6]
    assert raw.train.columns["coarse_label"].tolist() == ["1", "2"]
    assert raw.test is None


def test_parquet_one_file_and_files_that_say_nothing_are_one_set(tmp_path: Path) -> None:
    for i, name in enumerate(("a.parquet", "b.parquet")):
        make.write_parquet(tmp_path / name, make.pixels(2, 4, 4, 1, i), [0, 1], classes="x, y")
    assert len(read(find_parquet(tmp_path / "a.parquet")).train.labels) == 2
    raw = read(find_parquet(tmp_path))
    assert raw.train.images.shape == (4, 4, 4, 1)
    assert raw.classes == ("x", "y")
    assert raw.test is None


def test_parquet_prefers_test_and_tells_what_it_leaves_out(tmp_path: Path) -> None:
    for i, part in enumerate(("train", "test", "validation", "extra")):
        make.write_parquet(tmp_path / f"{part}.parquet", make.pixels(1, 4, 4, 1, i), [0])
    told: list[str] = []
    raw = read(find_parquet(tmp_path), tell=told.append)
    assert_array_equal(test_part(raw).images, make.pixels(1, 4, 4, 1, 1))
    assert told == ["not used: extra.parquet, validation.parquet"]


def bad_parquet() -> dict[str, tuple[Callable[[Path], None], str]]:
    images = make.pixels(3, 4, 4, 3)
    write = make.write_parquet
    return {
        "label": (lambda p: write(p, images, [0, 1, 2], classes="a,b"), "row 2 has label 2"),
        "negative": (lambda p: write(p, images, [0, -1, 2]), "row 1 has label -1"),
        "none": (lambda p: write(p, images, [0, None, 2]), "row 1 has no label"),
        "text": (lambda p: write(p, images, ["a", "b", "c"]), "whole numbers"),
        "no label": (lambda p: write(p, images, [0, 1, 2], label="y"), "expected a column 'label'"),
        "no image": (lambda p: write(p, images, [0, 1, 2], image="x"), "expected a column 'image'"),
        "sizes": (
            lambda p: write(p, [*images, make.pixels(1, 5, 4, 3)[0]], [0] * 4),
            "row 3 is 5×4",
        ),
        "empty": (lambda p: pq.write_table(_table(p, images).slice(0, 0), p), "holds no images"),
    }


def _table(path: Path, images: Any) -> Any:
    make.write_parquet(path, images, [0, 1, 2])
    return pq.read_table(path)


@pytest.mark.parametrize("case", bad_parquet())
def test_parquet_mistakes(tmp_path: Path, case: str) -> None:
    write, said = bad_parquet()[case]
    write(tmp_path / "bad.parquet")
    with pytest.raises(AccordError, match=rf"bad.parquet.*{said}"):
        read(find_parquet(tmp_path / "bad.parquet"))


def test_parquet_damaged_image_names_file_and_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    make.write_parquet(path, make.pixels(3, 4, 4, 3), [0, 1, 2])
    table = pq.read_table(path)
    cells = table["image"].to_pylist()
    cells[1]["bytes"] = cells[1]["bytes"][:40]
    pq.write_table(table.set_column(0, "image", [cells]), path)
    with pytest.raises(AccordError, match=r"a.parquet: row 1: expected an image"):
        read(find_parquet(path))
    cells[1]["bytes"] = None
    pq.write_table(table.set_column(0, "image", [cells]), path)
    with pytest.raises(AccordError, match=r"a.parquet: row 1 holds no image bytes"):
        read(find_parquet(path))


@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_parquet_truncated(tmp_path: Path, share: float) -> None:
    path = tmp_path / "a.parquet"
    make.write_parquet(path, make.pixels(3, 4, 4, 3), [0, 1, 2])
    cut(path, share)
    with pytest.raises(AccordError, match=r"a.parquet.*damaged"):
        read(find_parquet(path))


def test_parquet_folder_mistakes(tmp_path: Path) -> None:
    images = make.pixels(1, 4, 4, 3)
    make.write_parquet(tmp_path / "a/test.parquet", images, [0])
    with pytest.raises(AccordError, match=r"no train\*.parquet"):
        find_parquet(tmp_path / "a")
    make.write_parquet(tmp_path / "b/train.parquet", images, [0])
    with pytest.raises(AccordError, match=r"several folders hold parquet files \(a, b\)"):
        find_parquet(tmp_path)
    make.write_parquet(tmp_path / "c/train-0.parquet", images, [0], classes="x,y")
    make.write_parquet(tmp_path / "c/train-1.parquet", images, [0], classes="x,z")
    with pytest.raises(AccordError, match="different class names"):
        read(find_parquet(tmp_path / "c"))
    make.write_parquet(tmp_path / "d/x-train.parquet", images, [0])
    with pytest.raises(AccordError, match="x-test.parquet is not"):
        find_pair(tmp_path / "d", "x")


# Decoding and conversion -------------------------------------------------------------------------


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
    assert_array_equal(np.asarray(decode(saved(palette, transparency=bytes(9)), "x")), expected)
    alpha = picture.copy()
    alpha.putalpha(Image.fromarray(grey))
    assert_array_equal(np.asarray(decode(saved(alpha), "x")), colour)
    assert decode(saved(Image.fromarray(grey).convert("LA")), "x").mode == "L"
    assert decode(saved(picture.convert("CMYK"), "JPEG"), "x").mode == "RGB"


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
