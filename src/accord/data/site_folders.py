"""Folders of sites: one folder per site, with a folder per class in each.

A test part is in the folder of all sites (train/clinic-a/cat, test/clinic-a/cat) or in that of each
site (clinic-a/train/cat, clinic-a/test/cat).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from accord.core.errors import AccordError
from accord.data.decode import SUFFIXES
from accord.data.folders import (
    TEST_NAMES,
    Rows,
    decoded_part,
    images_in,
    inside,
    shortened,
    subfolders,
)
from accord.data.images import SITE
from accord.data.raw import Part, Raw, Request, Source

PARTS = ("train", *TEST_NAMES)


@dataclass(frozen=True)
class SiteFolder:
    """The folders of one site, with class folders in each; None if the site has no such part."""

    name: str
    train: Path | None
    test: Path | None

    def parts(self) -> list[Path]:
        return [part for part in (self.train, self.test) if part is not None]


def find_site_folders(path: Path) -> Source:
    """The source of a folder of sites."""
    files, read = partial(_files, path), partial(_read, path)
    folders = partial(_folders, path)
    return Source("folders of sites", path, files, read, salt="sites", folders=folders)


def _files(path: Path) -> list[Path]:
    parts = [part for site in _sites(path) for part in site.parts()]
    return [image for part in parts for folder in subfolders(part) for image in images_in(folder)]


def _folders(path: Path) -> list[Path]:
    """The class folders of all sites, also those without images."""
    parts = [part for site in _sites(path) for part in site.parts()]
    return [*parts, *(folder for part in parts for folder in subfolders(part))]


def _sites(path: Path) -> list[SiteFolder]:
    """The sites in a folder, sorted by name."""
    names = [folder.name for folder in subfolders(path)]
    test = _test_name(names)
    if "train" not in names or (test is None and len(names) > 1):
        return [_site(folder) for folder in subfolders(path)]
    others = [name for name in names if name not in PARTS]
    if others:
        raise AccordError(
            f"{path}: expected either train and {test} with a folder per site in each, or one "
            f"folder per site; found train and {test} beside {shortened(others)}. If a site is "
            "named train or test, rename its folder."
        )
    train = {folder.name: folder for folder in subfolders(path / "train")}
    held = {folder.name: folder for folder in subfolders(path / test)} if test else {}
    return [SiteFolder(name, train.get(name), held.get(name)) for name in sorted({*train, *held})]


def _site(folder: Path) -> SiteFolder:
    """The parts of one site. A class may be named "train", as in a folder of classes."""
    names = [inner.name for inner in subfolders(folder)]
    test = _test_name(names)
    if names and all(name in PARTS for name in names):
        train = folder / "train" if "train" in names else None
        return SiteFolder(folder.name, train, folder / test if test else None)
    if "train" in names and test:
        others = [name for name in names if name not in PARTS]
        raise AccordError(
            f"{folder}: expected either class folders, or train and {test} with class folders in "
            f"each; found train and {test} beside {shortened(others)}. Move or rename these "
            "folders."
        )
    return SiteFolder(folder.name, folder, None)


def _test_name(names: list[str]) -> str | None:
    return next((name for name in TEST_NAMES if name in names), None)


def _read(path: Path, request: Request) -> Raw:
    sites = _sites(path)
    _check(path, sites)
    trained = [site.train for site in sites if site.train is not None]
    classes = tuple(sorted({f.name for part in trained for f in subfolders(part) if images_in(f)}))
    if len(classes) < 2:
        raise AccordError(
            f"{path}: expected two or more classes over all sites, a folder per class in each "
            f"site; found {shortened(classes) or 'none'}."
        )
    train = _part(sites, "train", classes, request)
    test = _part(sites, "test", classes, request)
    _tell_left_out(path, sites, request)
    return Raw(train, test, classes) if train is not None else _no_training(path)


def _check(path: Path, sites: list[SiteFolder]) -> None:
    """Refuses a folder of classes, a site without images, and fewer than two sites."""
    if len(sites) < 2:
        raise AccordError(
            f"{path}: expected a folder per site, two or more, with class folders in each; found "
            f"{len(sites)}. Point `data.path` at the folder that holds the folders of the sites."
        )
    for site in sites:
        for part in site.parts():
            if not subfolders(part) and images_in(part):
                raise AccordError(
                    f"{part}: expected a folder of a site, with class folders in it; found images. "
                    f"Arrange the images as {path.name}/SITE/CLASS/IMAGE. If the folders in {path} "
                    "are classes, use another partition.scheme than by-folder."
                )
            if not any(images_in(folder) for folder in subfolders(part)):
                raise AccordError(
                    f"{part}: expected class folders with images ({', '.join(SUFFIXES)}); found "
                    f"none. Add the images of site {site.name!r}, or remove its folder."
                )


def _no_training(path: Path) -> Raw:
    raise AccordError(f"{path}: expected training images; found only test parts. Add them.")


def _part(
    sites: list[SiteFolder], what: str, classes: tuple[str, ...], request: Request
) -> Part | None:
    """The train or test images of all sites, site after site; None if there are none."""
    rows: Rows = []
    owners: list[str] = []
    for site in sites:
        part = site.train if what == "train" else site.test
        mine = _rows(part, classes, request) if part is not None else []
        rows += mine
        owners += [site.name] * len(mine)
    if not rows:
        return None
    return replace(decoded_part(rows, what, request), columns={SITE: np.array(owners, np.str_)})


def _rows(part: Path, classes: tuple[str, ...], request: Request) -> Rows:
    """The image files of a site with their labels, in the order of class and file name."""
    rows: Rows = []
    for folder in subfolders(part):
        images = images_in(folder)
        if not images:
            request.tell(f"{folder}: this class folder is empty and is left out")
        elif folder.name not in classes:
            raise AccordError(
                f"{folder}: no site has training images of this class; the classes are "
                f"{shortened(classes)}. Rename the folder, or add training images."
            )
        rows += [(image, classes.index(folder.name)) for image in images]
    return rows


def _tell_left_out(path: Path, sites: list[SiteFolder], request: Request) -> None:
    """Tells how many files are neither images nor in a class folder."""
    parts = {part for site in sites for part in site.parts()}
    used = sum(len(images_in(folder)) for part in parts for folder in subfolders(part))
    left_out = len(inside(path)) - used
    if left_out:
        request.tell(
            f"{path}: {left_out} files were left out, because they are not images in the class "
            "folder of a site"
        )
    unused = [f for f in subfolders(path) if not _holds(f, parts)]
    if unused:
        names = ", ".join(folder.name for folder in unused)
        request.tell(f"{path}: these folders are not used: {names}")


def _holds(folder: Path, parts: set[Path]) -> bool:
    return any(folder == part or folder in part.parents for part in parts)
