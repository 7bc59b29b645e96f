"""Folders and files of sites: every layout, what is told, and every mistake."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.datasets import load
from accord.data.images import SITE, Dataset
from accord.data.known import DATASETS
from accord.data.raw import Part, Raw
from imagefiles import held_out, read
from imagefiles import write_site_folders as write


def sites(path: Path, kind: str = "folder", tell: Any = lambda _: None, **wishes: Any) -> Raw:
    find = DATASETS.get(kind).find_sites
    assert find is not None
    return read(find(path), tell=tell, **wishes)


def named(part: Part, classes: tuple[str, ...] | None) -> list[tuple[str, str]]:
    """The site and the class of every image."""
    assert classes is not None
    labels = [classes[label] for label in part.labels]
    return list(zip(part.columns[SITE].tolist(), labels, strict=True))


class TestFolders:
    def test_one_folder_per_site(self, tmp_path: Path) -> None:
        images = write(tmp_path, {"b": {"dog": 1, "cat": 2}, "a": {"cat": 1, "elk": 1}})
        raw = sites(tmp_path)
        assert raw.classes == ("cat", "dog", "elk")
        assert raw.test is None
        assert named(raw.train, raw.classes) == [
            ("a", "cat"),
            ("a", "elk"),
            ("b", "cat"),
            ("b", "cat"),
            ("b", "dog"),
        ]
        order = ["a/cat/0.png", "a/elk/0.png", "b/cat/0.png", "b/cat/1.png", "b/dog/0.png"]
        assert_array_equal(raw.train.images, np.stack([images[name] for name in order]))

    def test_test_parts_of_all_sites_or_of_each(self, tmp_path: Path) -> None:
        train = {"a": {"cat": 2}, "b": {"cat": 1, "dog": 2}}
        test = {"b": {"dog": 1}, "a": {"dog": 1, "cat": 1}}
        write(tmp_path / "one/train", train)
        write(tmp_path / "one/val", test)
        for site in ("a", "b"):
            write(tmp_path / f"two/{site}", {"train": train[site], "test": test[site]})
        found = [sites(tmp_path / layout) for layout in ("one", "two")]
        for raw in found:
            assert raw.classes == ("cat", "dog")
            assert named(raw.train, raw.classes) == [
                ("a", "cat"),
                ("a", "cat"),
                ("b", "cat"),
                ("b", "dog"),
                ("b", "dog"),
            ]
            held = [("a", "cat"), ("a", "dog"), ("b", "dog")]
            assert named(held_out(raw), raw.classes) == held

    def test_a_site_may_lack_a_part_or_have_a_class_named_train(self, tmp_path: Path) -> None:
        write(tmp_path, {"a": {"bus": 1, "train": 1}, "b": {"bus": 1}})
        write(tmp_path / "c", {"train": {"bus": 1}})
        write(tmp_path / "d", {"test": {"train": 1}})
        raw = sites(tmp_path)
        assert raw.classes == ("bus", "train")
        assert [site for site, _ in named(raw.train, raw.classes)] == ["a", "a", "b", "c"]
        assert named(held_out(raw), raw.classes) == [("d", "train")]

    def test_what_is_left_out_is_told(self, tmp_path: Path) -> None:
        write(tmp_path, {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "dog": 1}})
        write(tmp_path / ".cache", {"a": {"cat": 1}})
        (tmp_path / "notes.txt").write_text("x")
        (tmp_path / "a/dog/notes.txt").write_text("x")
        make.save_image(tmp_path / "b/stray.png", make.pixels(1, 4, 4, 1)[0])
        (tmp_path / "b/elk").mkdir()
        told: list[str] = []
        raw = sites(tmp_path, tell=told.append)
        assert raw.classes == ("cat", "dog")
        assert len(raw.train.labels) == 4
        assert len(told) == 2
        assert "b/elk: this class folder is empty" in told[0]
        assert "3 files were left out" in told[1]

    def test_mistakes(self, tmp_path: Path) -> None:
        good = {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "dog": 1}}

        def refused(name: str, message: str) -> None:
            with pytest.raises(AccordError, match=message):
                sites(tmp_path / name)

        write(tmp_path / "classes", {"cat": 2, "dog": 2})
        refused("classes", r"classes/cat: expected a folder of a site.*found images.*another part")
        write(tmp_path / "parts/train", {"cat": 2, "dog": 2})
        write(tmp_path / "parts/test", {"cat": 2, "dog": 2})
        refused("parts", "train/cat: expected a folder of a site, with class folders")
        write(tmp_path / "one", {"a": {"cat": 1, "dog": 1}})
        refused("one", "expected a folder per site, two or more.*found 1")
        write(tmp_path / "empty", good)
        (tmp_path / "empty/c").mkdir()
        refused("empty", r"empty/c: expected class folders with images.*site 'c', or remove")
        write(tmp_path / "hollow", good)
        (tmp_path / "hollow/c/cat").mkdir(parents=True)
        refused("hollow", r"hollow/c: expected class folders with images.*found none")
        write(tmp_path / "lone", {"a": {"cat": 1}, "b": {"cat": 1}})
        refused("lone", "expected two or more classes over all sites.*found cat")
        write(tmp_path / "new/train", good)
        write(tmp_path / "new/test", {"a": {"elk": 1}})
        refused("new", r"a/elk: no site has training images of this class; .* cat, dog")
        write(tmp_path / "called", {"train": {"cat": 1, "dog": 1}, "test": {"cat": 1}, **good})
        refused("called", r"train and test beside a, b\. If a site is named train")
        write(tmp_path / "mixed", {**good, "c": {"train": 1, "test": 1, "cat": 1}})
        refused("mixed", "mixed/c: expected either class folders, or train and test.*beside cat")
        write(tmp_path / "held", {"a": {"test": {"cat": 1}}, "b": {"test": {"dog": 1}}})
        refused("held", "expected two or more classes over all sites|only test parts")

    def test_a_folder_of_sites_that_is_read_as_classes_is_remarked(self, tmp_path: Path) -> None:
        two = {"cat": 1, "dog": 1}
        write(tmp_path / "sites", {"a": two, "b": two})
        assert remarks(tmp_path / "sites")[0].count("by-folder") == 1
        write(tmp_path / "parts/train", {"a": two, "b": two})
        write(tmp_path / "parts/test", {"a": two, "b": two})
        assert "set partition.scheme to by-folder" in remarks(tmp_path / "parts")[0]
        # Folders of classes, also nested ones, are not.
        write(tmp_path / "plain", two)
        write(tmp_path / "nested", {"cat": {"tame": 1, "wild": 1}, "dog": {"old": 1, "wild": 1}})
        write(tmp_path / "tiny", {"cat": {"images": 1}, "dog": {"images": 1}})
        write(tmp_path / "both", {"cat": {"x": 1, "y": 1}, "dog": {"x": 1, "y": 1}})
        make.save_image(tmp_path / "both/dog/z.png", make.pixels(1, 4, 4, 1)[0])
        for name in ("plain", "nested", "tiny", "both"):
            assert remarks(tmp_path / name) == ()

    def test_hundreds_of_sites_are_quick(self, tmp_path: Path) -> None:
        write(tmp_path, {f"site-{k:03}": {"cat": 2, "dog": 2} for k in range(200)})
        began = time.perf_counter()
        found = load("folder", path=tmp_path, sites=True, tell=lambda _: None)
        assert time.perf_counter() - began < 10  # about 1 s
        assert len(set(found.train.columns[SITE])) == 200


def remarks(path: Path) -> tuple[str, ...]:
    return load("folder", path=path, tell=lambda _: None).remarks


def write_npz(path: Path, name: str, classes: list[str] | None = None, **sizes: int) -> Any:
    """A file with so many images of each class; classes are numbered in the given order."""
    labels = [k for k, size in enumerate(sizes.values()) for _ in range(size)]
    images = make.pixels(len(labels), 4, 5, 1, seed=len(name))
    more: dict[str, Any] = {} if classes is None else {"classes": classes}
    make.save_npz(path / f"{name}.npz", images=images, labels=np.array(labels), **more)
    return images


class TestFiles:
    def test_one_npz_per_site_with_classes_matched_by_name(self, tmp_path: Path) -> None:
        first = write_npz(tmp_path, "b", ["dog", "cat"], dog=1, cat=2)
        second = write_npz(tmp_path, "a-long", ["cat", "elk"], cat=1, elk=1)
        told: list[str] = []
        raw = sites(tmp_path, "npz", told.append)
        assert raw.classes == ("cat", "dog", "elk")
        assert named(raw.train, raw.classes) == [
            ("a-long", "cat"),
            ("a-long", "elk"),
            ("b", "dog"),
            ("b", "cat"),
            ("b", "cat"),
        ]
        assert_array_equal(raw.train.images, np.concatenate([second, first]))
        assert ["matched by name: 3 classes" in line for line in told] == [True]

    def test_the_same_names_keep_their_order_and_numbers_stay(self, tmp_path: Path) -> None:
        for site in ("a", "b"):
            write_npz(tmp_path / "named", site, ["dog", "cat"], dog=1, cat=2)
            write_npz(tmp_path / "numbered", site, dog=1, cat=2)
        raw = sites(tmp_path / "named", "npz")
        assert raw.classes == ("dog", "cat")
        assert raw.train.labels.tolist() == [0, 1, 1, 0, 1, 1]
        raw = sites(tmp_path / "numbered", "npz")
        assert raw.classes is None
        assert raw.train.labels.tolist() == [0, 1, 1, 0, 1, 1]

    def test_parts_in_one_file_in_two_or_in_a_folder(self, tmp_path: Path) -> None:
        images, labels = make.pixels(4, 4, 4, 1), np.array([0, 1, 0, 1])
        whole = {"x_train": images[:2], "y_train": labels[:2], "x_test": images[2:3]}
        make.save_npz(tmp_path / "a.npz", **whole, y_test=labels[2:3], age=np.array([1, 2]))
        make.save_npz(tmp_path / "b-train.npz", images=images[:3], labels=labels[:3])
        make.save_npz(tmp_path / "b-test.npz", images=images[3:], labels=labels[3:])
        make.save_npz(tmp_path / "c/train.npz", images=images[:2], labels=labels[:2])
        make.save_npz(tmp_path / "c/test.npz", images=images[2:], labels=labels[2:])
        raw = sites(tmp_path, "npz")
        assert raw.train.columns[SITE].tolist() == ["a"] * 2 + ["b"] * 3 + ["c"] * 2
        assert list(raw.train.columns) == [SITE]  # a column of some sites only
        assert held_out(raw).columns[SITE].tolist() == ["a", "b", "c", "c"]
        assert held_out(raw).labels.tolist() == [0, 1, 0, 1]

    def test_one_parquet_per_site(self, tmp_path: Path) -> None:
        images = make.pixels(4, 4, 4, 3)
        make.write_parquet(tmp_path / "a.parquet", images[:2], [0, 1], names=["cat", "dog"])
        make.write_parquet(tmp_path / "b-train.parquet", images[2:], [1, 0], names=["cat", "dog"])
        make.write_parquet(tmp_path / "b-test.parquet", images[:1], [1], names=["cat", "dog"])
        raw = sites(tmp_path, "parquet")
        assert_array_equal(raw.train.images, images)
        assert named(raw.train, raw.classes) == [
            ("a", "cat"),
            ("a", "dog"),
            ("b", "dog"),
            ("b", "cat"),
        ]
        assert named(held_out(raw), raw.classes) == [("b", "dog")]

    def test_sizes_and_channels(self, tmp_path: Path) -> None:
        grey, colour = make.pixels(2, 4, 4, 1), make.pixels(2, 6, 6, 3)
        make.save_npz(tmp_path / "a.npz", images=grey, labels=np.array([0, 1]))
        make.save_npz(tmp_path / "b.npz", images=colour, labels=np.array([0, 1]))
        said = r"site 'a' are 4×4, those of 'b' are 6×6\. Set `data.image`"
        with pytest.raises(AccordError, match=said):
            sites(tmp_path, "npz")
        raw = sites(tmp_path, "npz", size=4)
        assert raw.train.images.shape == (4, 4, 4, 3)
        assert_array_equal(raw.train.images[:2], np.repeat(grey, 3, axis=-1))
        assert raw.train.found is None

    def test_mistakes(self, tmp_path: Path) -> None:
        def refused(name: str, message: str) -> None:
            with pytest.raises(AccordError, match=message):
                sites(tmp_path / name, "npz")

        write_npz(tmp_path / "one", "a", dog=1, cat=1)
        refused("one", r"one \.npz file per site, two or more; found a")
        write_npz(tmp_path / "parts", "train", dog=1, cat=1)
        write_npz(tmp_path / "parts", "test", dog=1, cat=1)
        refused("parts", r"named test\.npz\. If .*parts holds the parts of one dataset")
        write_npz(tmp_path / "some", "a", ["dog", "cat"], dog=1, cat=1)
        write_npz(tmp_path / "some", "b", dog=1, cat=1)
        refused("some", "site 'b' has no class names, but other sites have")
        for name in ("a", "a-train", "b"):
            write_npz(tmp_path / "twice", name, dog=1, cat=1)
        refused("twice", "images of site 'a' are in several files")
        for name in ("a-test", "b-test"):
            write_npz(tmp_path / "held", name, dog=1, cat=1)
        refused("held", "expected training images; found only test parts")
        write_npz(tmp_path / "again", "a", ["dog", "dog"], dog=1, cat=1)
        write_npz(tmp_path / "again", "b", ["dog", "cat"], dog=1, cat=1)
        refused("again", "'dog' twice")
        write_npz(tmp_path / "high", "a", ["dog"], dog=1, cat=1)
        write_npz(tmp_path / "high", "b", ["dog", "cat"], dog=1, cat=1)
        refused("high", "row 1 has label 1; expected 0 to 0")
        images, labels = make.pixels(2, 4, 4, 1), np.array([0, 1])
        for name in ("a", "b"):
            make.save_npz(
                tmp_path / f"column/{name}.npz", images=images, labels=labels, site=labels
            )
        refused("column", "site 'a' have a column 'site'.*Rename the column")
        whole = {"x_train": images, "y_train": labels, "x_test": images, "y_test": labels}
        for name in ("a-train", "b"):
            make.save_npz(tmp_path / f"inner/{name}.npz", **whole)
        refused("inner", "train file of site 'a' holds a test part of its own")

    def test_strays_are_told(self, tmp_path: Path) -> None:
        for name in ("a", "b"):
            write_npz(tmp_path, name, dog=1, cat=1)
        (tmp_path / "notes.txt").write_text("x")
        (tmp_path / "old").mkdir()
        (tmp_path / ".hidden").write_text("x")
        told: list[str] = []
        sites(tmp_path, "npz", told.append)
        assert len(told) == 1
        assert "left out: notes.txt, old" in told[0]


class TestLoading:
    def test_the_cache_tells_sites_from_classes(self, tmp_path: Path) -> None:
        write(tmp_path, {"a": {"cat": 1, "dog": 1}, "b": {"cat": 1, "dog": 1}})
        loaded: list[Dataset] = [
            load("folder", path=tmp_path, sites=flag, tell=lambda _: None)
            for flag in (True, False, True)
        ]
        assert [one.classes for one in loaded] == [("cat", "dog"), ("a", "b"), ("cat", "dog")]
        assert loaded[0].folder == loaded[2].folder
        assert loaded[2].train.columns[SITE].tolist() == ["a", "a", "b", "b"]

    def test_a_path_that_is_no_folder_and_a_dataset_without_sites(self, tmp_path: Path) -> None:
        with pytest.raises(AccordError, match=r"by-folder is for your own images.*found 'digits'"):
            load("digits", sites=True, tell=print)
        with pytest.raises(AccordError, match=r"expects a folder with one file .*found nothing"):
            load("npz", path=tmp_path / "none", sites=True, tell=print)
        file = make.save_npz(tmp_path / "a.npz", images=make.pixels(2, 4, 4, 1))
        with pytest.raises(AccordError, match=r"one file for each site; found a file"):
            load("npz", path=file, sites=True, tell=print)
        with pytest.raises(AccordError, match=r"'folder' needs `data.path`"):
            load("folder", sites=True, tell=print)
