"""How images are laid out is seen from their folders and files."""

from __future__ import annotations

from pathlib import Path

import pytest

from accord.advice.layouts import sections_of
from accord.core.errors import AccordError
from imagefiles import labels, pixels, save_image, save_npz, write_parquet


def pictures(folder: Path, count: int = 2, side: int = 8) -> None:
    for number, image in enumerate(pixels(count, side, side, 1)):
        save_image(folder / f"{number}.png", image)


def scheme_of(path: Path) -> str:
    return str(sections_of(path, None, None, None)["partition"]["scheme"])


def test_folders(tmp_path: Path) -> None:
    layouts = {
        "classes": (["cat", "dog"], "dirichlet"),
        "parts": (["train/cat", "train/dog", "test/cat", "test/dog"], "dirichlet"),
        "classes-with-folders": (["cat/images", "dog/images"], "dirichlet"),
        "sites": (["a/cat", "a/dog", "b/cat"], "by-folder"),
        "sites-in-parts": (["train/a/cat", "train/b/dog", "test/a/cat"], "by-folder"),
        "sites-with-parts": (["a/train/cat", "a/test/cat", "b/train/dog"], "by-folder"),
        "sites-of-one-class": (["a/cat", "b/dog"], "by-folder"),
    }
    for name, (folders, scheme) in layouts.items():
        for folder in folders:
            pictures(tmp_path / name / folder)
        found = sections_of(tmp_path / name, None, None, None)
        assert found["partition"]["scheme"] == scheme, name
        assert found["data"] == {"name": "folder", "path": str(tmp_path / name)}, name
    pictures(tmp_path / "sites" / "b")  # images beside class folders: these are no sites
    assert scheme_of(tmp_path / "sites") == "dirichlet"


def test_files(tmp_path: Path) -> None:
    one = save_npz(tmp_path / "one.npz", images=pixels(4, 8, 8, 1), labels=labels(4))
    assert sections_of(one, None, 7, None)["partition"] == {
        "scheme": "dirichlet",
        "alpha": 0.1,
        "clients": 7,
    }
    by = sections_of(one, "site", None, 16)
    assert by["partition"] == {"scheme": "by-column", "column": "site"}
    assert by["data"] == {"name": "npz", "path": str(one), "image": 16}
    for name in ("train", "test"):
        save_npz(tmp_path / "parts" / f"{name}.npz", images=pixels(4, 8, 8, 1), labels=labels(4))
        write_parquet(tmp_path / "hub" / f"{name}-0.parquet", pixels(3, 8, 8, 1), labels(3))
    for name in ("a/train", "a/test", "b/train"):
        save_npz(tmp_path / "deep" / f"{name}.npz", images=pixels(4, 8, 8, 1), labels=labels(4))
        flat = name.replace("/", "-")
        write_parquet(tmp_path / "flat" / f"{flat}.parquet", pixels(3, 8, 8, 1), labels(3))
    write_parquet(tmp_path / "repository/data/train-0.parquet", pixels(3, 8, 8, 1), labels(3))
    for name in ("clinic-a", "clinic-b"):
        save_npz(tmp_path / "sites" / f"{name}.npz", images=pixels(4, 8, 8, 1), labels=labels(4))
        write_parquet(tmp_path / "tables" / f"{name}.parquet", pixels(3, 8, 8, 1), labels(3))
    wanted = {
        **dict.fromkeys(("parts", "hub", "repository"), "dirichlet"),
        **dict.fromkeys(("sites", "tables", "deep", "flat"), "by-folder"),
    }
    assert {name: scheme_of(tmp_path / name) for name in wanted} == wanted


def test_images_of_several_sizes_or_large_ones_get_one_size(tmp_path: Path) -> None:
    for name, sides, wanted in (
        ("same", (20, 20), None),
        ("differ", (20, 40), 40),
        ("large", (100, 100), 64),
        ("both", (100, 200), 64),
    ):
        for side, folder in zip(sides, ("cat", "dog"), strict=True):
            pictures(tmp_path / name / folder, side=side)
        (tmp_path / name / "dog" / "broken.png").write_bytes(b"no image")
        found = sections_of(tmp_path / name, None, None, None)["data"]
        assert found.get("image") == wanted, name


def test_what_is_not_there_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").write_text("no images")
    pictures(tmp_path / "sites" / "a" / "cat")
    pictures(tmp_path / "sites" / "b" / "dog")
    pictures(tmp_path / "mixed" / "a" / "cat")
    save_npz(tmp_path / "mixed" / "b.npz", images=pixels(4, 8, 8, 1), labels=labels(4))
    save_npz(tmp_path / "kinds" / "a.npz", images=pixels(4, 8, 8, 1), labels=labels(4))
    write_parquet(tmp_path / "kinds" / "b.parquet", pixels(3, 8, 8, 1), labels(3))
    for path, said in (
        (tmp_path / "mixed", "found .npz files and folders of images"),
        (tmp_path / "kinds", "found .npz files and .parquet files"),
        (tmp_path / "nowhere", "does not exist"),
        (tmp_path / "empty", "found no image"),
        (tmp_path / "notes.txt", r"found a file \*\.txt"),
    ):
        with pytest.raises(AccordError, match=said):
            sections_of(path, None, None, None)
    with pytest.raises(AccordError, match="already name the clients"):
        sections_of(tmp_path / "sites", None, 3, None)
