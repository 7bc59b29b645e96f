"""The cache: content keys, verified entries, rebuilding, and several processes at once."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import imagefiles as make
from accord.core.errors import AccordError
from accord.data import cache
from accord.data.datasets import load, open_cached
from accord.data.images import Dataset, Images
from accord.data.raw import Raw, Source
from core.cases import looped


def dataset(seed: int = 0) -> Dataset:
    columns = {"site/../x": np.array(["a", "längér"]), "age": np.array(["1", "2"])}
    return Dataset(
        name="some",
        classes=("ä", "b"),
        train=Images(make.pixels(2, 4, 5, 3, seed), np.array([0, 1]), columns),
        test=Images(make.pixels(1, 4, 5, 3, seed + 1), np.array([1])),
        mean=(0.1, 0.2, 0.3),
        std=(0.4, 0.5, 0.6),
        augment="upright",
        folder=Path("nowhere"),
        remarks=("a remark",),
    )


def never() -> Dataset:
    raise AssertionError("must come from the cache")


def silent(_: str) -> None:
    pass


def test_round_trip_is_exact_and_mapped() -> None:
    made = dataset()
    folder = cache.obtain("key", lambda: made, silent)
    back = open_cached(cache.obtain("key", never, silent))
    assert (back.name, back.classes, back.mean, back.std) == (
        "some",
        ("ä", "b"),
        made.mean,
        made.std,
    )
    assert (back.augment, back.remarks, back.folder) == ("upright", ("a remark",), folder)
    assert isinstance(back.train.images, np.memmap)
    assert not back.train.images.flags.writeable
    assert_array_equal(back.train.images, made.train.images)
    assert_array_equal(back.train.labels, made.train.labels)
    assert back.test is not None
    assert made.test is not None
    assert_array_equal(back.test.images, made.test.images)
    assert back.train.columns.keys() == made.train.columns.keys()
    assert back.train.columns["site/../x"].tolist() == ["a", "längér"]
    assert {path.name for path in folder.parent.iterdir()} <= {"key", "key.lock"}


@looped("harm", ["bytes", "gone", "meta", "shape"])
def test_a_damaged_entry_is_told_and_rebuilt(harm: str) -> None:
    folder = cache.obtain("key", dataset, silent)
    images = folder / "train-images.npy"
    if harm == "bytes":
        data = bytearray(images.read_bytes())
        data[-1] ^= 1
        images.write_bytes(data)
    elif harm == "gone":
        images.unlink()
    elif harm == "meta":
        (folder / "meta.json").write_text("{")
    else:
        np.save(images, make.pixels(1, 4, 5, 3))
    told: list[str] = []
    cache.obtain("key", dataset, told.append)
    assert len(told) == 1
    assert "damaged" in told[0]
    assert_array_equal(open_cached(folder).train.images, dataset().train.images)


def test_open_cached_checks_shapes() -> None:
    folder = cache.obtain("key", dataset, silent)
    np.save(folder / "train-labels.npy", np.arange(3))
    with pytest.raises(AccordError, match=r"missing or damaged \(train-labels.npy has shape"):
        open_cached(folder)
    with pytest.raises(AccordError, match="Delete the folder"):
        open_cached(folder / "nothing")


def test_what_a_killed_process_left_is_swept_away() -> None:
    root = cache.cache_root()
    (root / ".key.part").mkdir(parents=True)
    (root / ".key.part/train-images.npy").write_bytes(b"half")
    cache.obtain("key", dataset, silent)
    assert not (root / ".key.part").exists()


def test_a_failed_build_leaves_nothing() -> None:
    def fail() -> Dataset:
        raise AccordError("bad image")

    with pytest.raises(AccordError, match="bad image"):
        cache.obtain("key", fail, silent)
    assert not (cache.cache_root() / "key").exists()
    cache.obtain("key", dataset, silent)


def test_a_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "file/cache"))
    with pytest.raises(AccordError, match="set ACCORD_CACHE to another folder"):
        cache.obtain("key", dataset, silent)


@pytest.mark.skipif(os.name != "posix" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path))
    cache.obtain("key", dataset, silent)
    tmp_path.chmod(0o500)
    cache.obtain("key", never, silent)
    with pytest.raises(AccordError, match="ACCORD_CACHE"):
        cache.obtain("other", dataset, silent)


# Keys --------------------------------------------------------------------------------------------


def source(*files: Path) -> Source:
    def read(_: object) -> Raw:
        raise NotImplementedError

    return Source("some", files[0].parent, lambda: list(files), read)


def test_the_key_is_the_content(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        make.write_files(tmp_path / folder, {"a": b"12", "b": b"3"})
    one = source(tmp_path / "one/a", tmp_path / "one/b")
    two = source(tmp_path / "two/a", tmp_path / "two/b")
    assert cache.key_of(one, "x", 32) == cache.key_of(two, "x", 32)
    assert cache.key_of(one, "x", 32) != cache.key_of(one, "y", 32)
    assert cache.key_of(one, "x", 32) != cache.key_of(one, "x", None)
    make.write_files(tmp_path / "two", {"a": b"1", "b": b"23"})
    assert cache.key_of(one, "x", 32) != cache.key_of(two, "x", 32)


def test_a_changed_source_is_decoded_again_and_a_missing_one_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    make.write_parquet(path, make.pixels(2, 4, 4, 3, 0), [0, 1])
    first = load("parquet", path=path, tell=silent)
    make.write_parquet(path, make.pixels(2, 4, 4, 3, 1), [0, 1])
    second = load("parquet", path=path, tell=silent)
    assert first.folder != second.folder
    assert_array_equal(second.train.images, make.pixels(2, 4, 4, 3, 1))
    path.unlink()
    with pytest.raises(AccordError, match="does not exist"):
        load("parquet", path=path, tell=silent)


# Several processes -------------------------------------------------------------------------------


def slow_build(log: Path) -> Dataset:
    with log.open("a") as file:
        file.write(f"{os.getpid()}\n")
    time.sleep(0.3)
    return dataset()


def obtain_in_a_process(log: Path) -> int:
    folder = cache.obtain("shared", lambda: slow_build(log), silent)
    return int(open_cached(folder).train.images.sum())


@pytest.mark.parametrize("damaged_before", [False, True])
def test_two_processes_build_once(tmp_path: Path, damaged_before: bool) -> None:
    if damaged_before:
        folder = cache.obtain("shared", dataset, silent)
        (folder / "meta.json").write_text(json.dumps({"parts": 3}))
    log = tmp_path / "log"
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(3, mp_context=context) as pool:
        sums = list(pool.map(obtain_in_a_process, [log] * 3))
    assert sums == [int(dataset().train.images.sum())] * 3
    assert len(log.read_text().splitlines()) == 1
