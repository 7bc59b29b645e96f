""".npz files: the accepted names, columns, and every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.npz import find_npz
from imagefiles import cut, held_out, read


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
    assert_array_equal(held_out(raw).images, test)
    assert raw.classes == ("x", "y", "z")
    assert {k: v.tolist() for k, v in raw.train.columns.items()} == {"site": ["p", "p", "q", "q"]}
    assert {k: v.tolist() for k, v in held_out(raw).columns.items()} == {"site": ["7", "8"]}


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
    assert_array_equal(held_out(raw).images, make.pixels(3, 5, 6, 1, 1))


def test_missing_values_and_whole_numbers_of_a_column(tmp_path: Path) -> None:
    """A gap is the empty text, and a whole number has no decimal point."""
    days = np.array(["2020-01-02", "NaT"], "datetime64[D]")
    cases: dict[str, tuple[Any, list[str]]] = {
        "fractions": (np.array([1.0, np.nan]), ["1", ""]),
        "small fractions": (np.array([0.1, -2], np.float32), ["0.1", "-2"]),
        "numbers": (np.array([2**60 + 1, 0]), ["1152921504606846977", "0"]),
        "truth": (np.array([True, False]), ["True", "False"]),
        "days": (days, ["2020-01-02", ""]),
        "text": (["1.0", "01"], ["1.0", "01"]),
    }
    for number, (what, (values, expected)) in enumerate(cases.items()):
        arrays = {"images": make.pixels(2, 4, 4, 1), "labels": np.arange(2), "site": values}
        raw = read(find_npz(make.save_npz(tmp_path / f"{number}.npz", **arrays)))
        assert raw.train.columns["site"].tolist() == expected, what


def test_an_array_that_is_no_column_is_told(tmp_path: Path) -> None:
    images, labels = make.pixels(3, 4, 4, 1), np.arange(3)
    one: dict[str, Any] = {"images": images, "labels": labels, "site": ["a"] * 2, "age": labels}
    two: dict[str, Any] = {
        "x_train": images,
        "y_train": labels,
        "x_test": images[:2],
        "y_test": labels[:2],
    }
    for arrays, said in ((one, "3 values: site (2,)"), ({**two, "odd": [1] * 4}, "2 or 3 values")):
        (remark,) = read(find_npz(make.save_npz(tmp_path / "a.npz", **arrays))).remarks
        assert said in remark
        assert "age" not in remark


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
            {
                "x_train": images,
                "y_train": labels,
                "x_test": images,
                "y_test": labels,
                "site": labels,
            },
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
    arrays = {
        "images": make.pixels(1, 4, 4, 3),
        "labels": np.array([make.Attack(tmp_path / "was-run")]),
    }
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
    with pytest.raises(AccordError, match=r"it is no \.npz file"):
        read(find_npz(tmp_path / "b.npy"))
