"""Image parquet: shards, metadata, columns, and every mistake."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_array_equal

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.parquet import find_pair, find_parquet
from imagefiles import cut, held_out, read


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
    assert_array_equal(held_out(raw).images, images[5:])


def test_every_kind_of_column_that_can_name_sites(tmp_path: Path) -> None:
    cases: dict[str, tuple[Any, list[str]]] = {
        "text": (["a", None], ["a", ""]),
        "numbers": ([7, None], ["7", ""]),
        "fractions": ([1.0, float("nan")], ["1", ""]),
        "small": (pa.array([0.1, None], pa.float32()), ["0.1", ""]),
        "truth": ([True, False], ["True", "False"]),
        "days": ([date(2020, 1, 2), None], ["2020-01-02", ""]),
        "category": (pa.array(["n", "s"]).dictionary_encode(), ["n", "s"]),
    }
    columns = {what: values for what, (values, _) in cases.items()} | {"list": [[1], [2]]}
    path = tmp_path / "train.parquet"
    make.write_parquet(path, make.pixels(2, 4, 4, 3), [0, 1], columns=columns)
    found = read(find_parquet(tmp_path)).train.columns
    assert {what: values.tolist() for what, values in found.items()} == {
        what: expected for what, (_, expected) in cases.items()
    }


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
    assert_array_equal(held_out(raw).images, make.pixels(1, 4, 4, 1, 1))
    assert told == ["these files are not used: extra.parquet, validation.parquet"]


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
    with pytest.raises(AccordError, match=r"x-test\.parquet is not"):
        find_pair(tmp_path / "d", "x")
