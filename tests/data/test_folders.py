"""Class folders and Tiny ImageNet: order, parts, what is left out, and every mistake."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.folders import find_folder, find_tiny_imagenet
from imagefiles import cut, held_out, read


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
    assert_array_equal(held_out(raw).images, test[:2])
    assert held_out(raw).labels.tolist() == [1, 1]


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
    assert any("not used: val;" in line for line in told)
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
    assert held_out(raw).labels.tolist() == [2, 0, 1]
    assert held_out(raw).images[:, 0, 0, 0].tolist() == [30, 10, 20]
    assert told == []


def test_tiny_imagenet_damaged(tmp_path: Path) -> None:
    write_tiny(tmp_path)
    with (tmp_path / "val/val_annotations.txt").open("a") as file:
        file.write("val_n01.JPEG\tn99\n")
    with pytest.raises(AccordError, match=r"val_annotations.txt.*line 4 names class 'n99'"):
        read(find_tiny_imagenet(tmp_path))
    (tmp_path / "words.txt").write_text("n01\tcrane\n")
    (tmp_path / "val/val_annotations.txt").write_text("val_n01.JPEG\tn01\n")
    with pytest.raises(AccordError, match=r"words.txt.*no words for class n02"):
        read(find_tiny_imagenet(tmp_path))
