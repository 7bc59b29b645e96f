"""How the images at a path are laid out: the sections `data` and `partition` that fit them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

from accord.core.errors import AccordError
from accord.data.decode import SUFFIXES, size_of
from accord.data.folders import subfolders
from accord.data.listing import entries, files_below
from accord.data.site_folders import PARTS

Spec = dict[str, Any]
LARGEST = 64  # pixels: larger images are made smaller, because the cost grows with their area
SMALLEST, ENLARGED = 4, 8  # pixels: tiny images are made larger, because features need patches
ALPHA = 0.1  # the label skew of clients that are drawn: strong
CLIENTS = 5
SCANNED = 2_000  # image files whose size is read
EXPECTED = (
    "a folder of class folders, a folder of sites with class folders in each, an .npz or parquet "
    "file, or a folder of such files"
)


def sections_of(path: Path, column: str | None, clients: int | None, image: int | None) -> Spec:
    """The sections `data` and `partition` of a study with the images at `path`."""
    found = path.expanduser().absolute()
    if not found.exists():
        raise AccordError(f"--data {path} does not exist; expected {EXPECTED}.")
    name = _format(found)
    data: Spec = {"name": name, "path": str(found)}
    size = image if image is not None else _common_size(found) if name == "folder" else None
    if size is not None:
        data["image"] = size
    by_folder = column is None and _has_sites(found, name)
    return {"data": data, "partition": _partition(column, clients, by_folder, found)}


def _partition(column: str | None, clients: int | None, by_folder: bool, path: Path) -> Spec:
    if clients is not None and (column is not None or by_folder):
        where = f"the column {column!r}" if column is not None else f"the folders of {path}"
        raise AccordError(
            f"--clients {clients}: {where} already name the clients. Leave out --clients."
        )
    if column is not None:
        return {"scheme": "by-column", "column": column}
    if by_folder:
        return {"scheme": "by-folder"}
    return {
        "scheme": "dirichlet",
        "alpha": ALPHA,
        "clients": CLIENTS if clients is None else clients,
    }


def _format(path: Path) -> str:
    """The name of the dataset's format."""
    if path.is_file():
        kind = path.suffix.lower().removeprefix(".")
        if kind in ("npz", "parquet"):
            return kind
        raise AccordError(f"--data {path}: expected {EXPECTED}; found a file *{path.suffix}.")
    arrays = [kind for kind in ("npz", "parquet") if _holds_files(path, kind)]
    pictures = any(_holds_images(folder) for folder in subfolders(path))
    if len(arrays) + pictures > 1:
        kinds = [f".{kind} files" for kind in arrays] + ["folders of images"] * pictures
        raise AccordError(
            f"--data {path}: expected {EXPECTED}; found {' and '.join(kinds)}, and some would be "
            "left out. Leave one kind in this folder."
        )
    if arrays:
        return arrays[0]
    if next(_pictures(path), None) is None:
        raise AccordError(
            f"--data {path}: expected {EXPECTED}; found no image ({', '.join(SUFFIXES)}), .npz or "
            "parquet file in it."
        )
    return "folder"


def _holds_files(path: Path, kind: str) -> bool:
    return any(next(path.glob(f"{depth}*.{kind}"), None) for depth in ("", "*/"))


def _has_sites(path: Path, name: str) -> bool:
    """Whether each folder or file at `path` belongs to a site of its own."""
    if path.is_file():
        return False
    return _sites_of_folders(path) if name == "folder" else _sites_of_files(path, name)


def _sites_of_folders(path: Path) -> bool:
    """Whether there are class folders below each of several folders: sites/clinic-a/cat/1.png.

    A folder of classes may have further folders in each class, but then these have the same name,
    as in tiny-imagenet/n01/images/1.png.
    """
    names = {folder.name for folder in subfolders(path)}
    inside = path / "train" if "train" in names and names <= {*PARTS} else path
    sites = subfolders(inside)
    classes = {one.name for site in sites for one in _class_folders(site) if _holds_images(one)}
    return len(sites) > 1 and len(classes) > 1 and all(map(_only_folders, sites))


def _class_folders(site: Path) -> list[Path]:
    """The class folders of a site, which may be inside of train and test."""
    found = subfolders(site)
    parts = bool(found) and {folder.name for folder in found} <= {*PARTS}
    return [one for part in found for one in subfolders(part)] if parts else found


def _only_folders(site: Path) -> bool:
    return bool(subfolders(site)) and not any(_is_picture(site / name) for name in entries(site))


def _sites_of_files(path: Path, name: str) -> bool:
    """Whether there are files of several sites: clinic-a.npz, clinic-b-test.npz, or clinic-c/."""
    words = "|".join(PARTS)
    stems = [file.stem.lower() for file in path.glob(f"*.{name}")]
    stems += [folder.name for folder in subfolders(path) if next(folder.glob(f"*.{name}"), None)]
    sites = {re.sub(rf"[-_.]({words})$", "", stem) for stem in stems}
    return len(sites) > 1 and not any(re.search(rf"\b({words})\b", site) for site in sites)


def _holds_images(folder: Path) -> bool:
    return next(_pictures(folder), None) is not None


def _pictures(path: Path) -> Iterator[Path]:
    return (file for file in files_below(path) if _is_picture(file))


def _is_picture(file: Path) -> bool:
    return file.is_file() and file.suffix.lower() in SUFFIXES and file.name[0] != "."


def _common_size(path: Path) -> int | None:
    """The size for `data.image` if images differ in size or are large; else None.

    A damaged file is left to the reader of the images, whose message names it.
    """
    found = (size_of(file) for file in islice(_pictures(path), SCANNED))
    sizes = {size for size in found if size is not None}
    sides = sorted(min(size) for size in sizes)
    if len(sizes) > 1:
        return max(4, min(LARGEST, sides[len(sides) // 2]))
    return LARGEST if sides and sides[0] > LARGEST else None
