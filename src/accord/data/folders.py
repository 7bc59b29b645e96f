"""Folders of image files: one folder per class, and the layout of Tiny ImageNet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from accord.core.errors import AccordError
from accord.core.reading import read_plain, read_text
from accord.data.decode import MOST_FILE, SUFFIXES, decode_all
from accord.data.formats import damaged
from accord.data.listing import entries, files_below, folders_in, usable
from accord.data.raw import Part, Raw, Request, Source

TEST_NAMES = ("test", "val", "valid", "validation")  # the first that exists is the test part
Rows = list[tuple[Path, int]]


# Class folders -----------------------------------------------------------------------------------


def find_folder(path: Path) -> Source | None:
    """The source of train/ and test/ with class folders in each, or of class folders as one set."""
    if not path.is_dir():
        return None
    return Source(
        "class folders",
        path,
        partial(_files, path),
        partial(_read, path),
        folders=partial(_folders, path),
    )


def _parts(path: Path) -> tuple[Path, Path | None, list[str]]:
    """The folders of train and test, and the names of folders that are neither.

    A class may have the name "train". The folder is the training part only if there is a test
    folder, or no other folder.
    """
    names = {folder.name for folder in subfolders(path)}
    test = next((name for name in TEST_NAMES if name in names), None)
    if "train" not in names or (test is None and len(names) > 1):
        return path, None, []
    unused = sorted(names - {"train", test})
    return path / "train", path / test if test else None, unused


def _files(path: Path) -> list[Path]:
    train, test, _ = _parts(path)
    parts = [train] if test is None else [train, test]
    return [image for part in parts for folder in subfolders(part) for image in images_in(folder)]


def _folders(path: Path) -> list[Path]:
    """The class folders, also those without images."""
    train, test, _ = _parts(path)
    return [one for part in (train, test) if part is not None for one in subfolders(part)]


def _read(path: Path, request: Request) -> Raw:
    train, test, unused = _parts(path)
    if unused:
        request.tell(
            f"{path}: these folders are not used: {', '.join(unused)}; only train and "
            f"{test and test.name} are used"
        )
    classes = request.classes or tuple(folder.name for folder in subfolders(train))
    if len(classes) < 2:
        raise AccordError(
            f"{train}: expected a folder per class, two or more; found {len(classes)}. Point "
            "`data.path` at the folder that holds the class folders, or train/ and test/."
        )
    parts = [decoded_part(_rows(train, classes, request), "train", request)]
    if test is not None:
        parts.append(decoded_part(_rows(test, classes, request), "test", request))
    return Raw(parts[0], parts[1] if test else None, classes, _looks_like_sites(train))


def _looks_like_sites(path: Path) -> tuple[str, ...]:
    """A remark about folders that look like those of sites, each with its own class folders."""
    first = subfolders(path)
    if any(Path(name).suffix.lower() in SUFFIXES for one in first for name in entries(one)):
        return ()
    below = Counter(folder.name for one in first for folder in subfolders(one))
    repeated = [name for name, uses in below.items() if uses > 1]
    if len(repeated) < 2:
        return ()
    return (
        f"{path}: the folders {shortened([one.name for one in first])} are read as classes, but "
        f"several of them hold the same folders ({shortened(repeated)}). If they are sites with "
        "class folders, set partition.scheme to by-folder",
    )


def _rows(part: Path, classes: tuple[str, ...], request: Request) -> Rows:
    """The image files of a part with their labels, in the order of class and file name."""
    rows: Rows = []
    for folder in subfolders(part):
        if folder.name not in classes:
            raise AccordError(
                f"{folder}: this class is not among those of "
                f"{'the study' if request.classes else 'train'} ({shortened(classes)}). Rename "
                f"the folder{'' if request.classes else ' or add the class to train'}."
            )
        images = images_in(folder)
        if not images:
            raise AccordError(
                f"{folder}: expected images ({', '.join(SUFFIXES)}); found none. Add "
                "images to this class or remove its folder."
            )
        rows += [(image, classes.index(folder.name)) for image in images]
    if not rows:
        raise AccordError(f"{part}: expected a folder per class with images; found none.")
    beside = sum((part / name).is_file() for name in entries(part))
    left_out = beside + sum(len(inside(folder)) for folder in subfolders(part)) - len(rows)
    if left_out:
        request.tell(f"{part}: {left_out} files that are not images of a class were left out")
    return rows


def decoded_part(rows: Rows, what: str, request: Request) -> Part:
    encoded: Iterable[tuple[str, bytes]] = (
        (str(path), read_plain(path, MOST_FILE)) for path, _ in rows
    )
    images, found = decode_all(encoded, len(rows), what, request)
    return Part(images, np.array([label for _, label in rows], np.int64), found)


def subfolders(path: Path) -> list[Path]:
    return folders_in(path)


def images_in(folder: Path) -> list[Path]:
    found = sorted(file for file in inside(folder) if file.suffix.lower() in SUFFIXES)
    return [usable(file) for file in found]


def inside(folder: Path) -> list[Path]:
    """All files in and below a folder, except hidden files and files in hidden folders."""
    return list(files_below(folder))


def shortened(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (", …" if len(names) > 5 else "")


# Tiny ImageNet -----------------------------------------------------------------------------------


def find_tiny_imagenet(folder: Path) -> Source | None:
    """train/<wnid>/images/*.JPEG, val/ as test part, words.txt; in `folder` or one level below."""
    for place in (folder / "tiny-imagenet-200", folder):
        wanted = (place / "train", place / "val" / "val_annotations.txt", place / "words.txt")
        if all(path.exists() for path in wanted):
            files = partial(_tiny_files, place)
            return Source("official folder", place, files, partial(_tiny_read, place))
    return None


def _tiny_files(place: Path) -> list[Path]:
    texts = [place / "words.txt", place / "val" / "val_annotations.txt"]
    return [*texts, *images_in(place / "train"), *images_in(place / "val")]


def _tiny_read(place: Path, request: Request) -> Raw:
    wnids = tuple(folder.name for folder in subfolders(place / "train"))
    train = decoded_part(_rows(place / "train", wnids, _quiet(request)), "train", request)
    test = decoded_part(_annotated(place / "val", wnids), "test", request)
    return Raw(train, test, _words(place / "words.txt", wnids))


def _quiet(request: Request) -> Request:
    # Each class folder has a text file of bounding boxes, so a remark about it is not useful.
    return Request(request.name, request.size, request.classes, lambda _: None)


def _annotated(val: Path, wnids: tuple[str, ...]) -> Rows:
    """The rows of val_annotations.txt: file name, wnid, and a bounding box that is not used."""
    path = val / "val_annotations.txt"
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    rows: Rows = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        name, wnid, *_ = [*line.split("\t"), ""]
        image = val / "images" / Path(name).name
        if wnid not in label_of or not image.is_file():
            raise damaged(path, f"line {number} names class {wnid!r} and file {name!r}")
        rows.append((image, label_of[wnid]))
    return rows


def _words(path: Path, wnids: tuple[str, ...]) -> tuple[str, ...]:
    """The first English word of each class, with its wnid if two classes have the same word."""
    lines = (line.partition("\t") for line in read_text(path).splitlines())
    words = {wnid: text.partition(",")[0].strip() for wnid, _, text in lines}
    missing = [wnid for wnid in wnids if not words.get(wnid)]
    if missing:
        raise damaged(path, f"it has no words for class {missing[0]}")
    uses = Counter(words[wnid] for wnid in wnids)
    return tuple(words[w] if uses[words[w]] == 1 else f"{words[w]} ({w})" for w in wnids)
