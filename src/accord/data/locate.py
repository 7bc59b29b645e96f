"""The search for a dataset's files in data roots, and the advice if they are not found."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from accord.core.errors import AccordError
from accord.data.download import DOWNLOADS
from accord.data.known import DATASETS, Known
from accord.data.parquet import find_pair, find_parquet
from accord.data.raw import Source


def roots(root: Path | None) -> list[Path]:
    """The data roots in the order of the search. If `root` is given, only this one is searched."""
    if root is not None:
        return [_existing(root, "the data root")]
    chosen = os.environ.get("ACCORD_DATA")
    first = [_existing(Path(chosen), "ACCORD_DATA")] if chosen else []
    return [*first, Path("data"), Path.home() / ".cache/accord/data"]


def roots_of(known: Known, root: Path | None) -> list[Path]:
    """`roots`, and the folder in which the operating system keeps this dataset."""
    return [*roots(root), *([known.system] if known.system else [])]


def locate(known: Known, path: Path | None, root: Path | None) -> Source:
    """The files of a dataset. If there are none, the error says which files are needed."""
    if known.kind == "builtin":
        return _builtin(known, path, root)
    if known.kind == "generic":
        return _generic(known, path)
    searched = [_existing(path, "`data.path`")] if path is not None else roots_of(known, root)
    for folder in searched:
        source = search(known, folder)
        # Unlike a root, a path belongs to this dataset alone, so any parquet file in it is used.
        if source is None and path is not None:
            source = find_parquet(folder)
        if source is not None:
            return source
    places = ", ".join(str(folder) for folder in searched)
    do = advice(known, searched[0])
    raise AccordError(f"there are no files of {known.name!r} in {places}. To correct this, {do}.")


def found_root(name: str, root: Path | None) -> Path | None:
    """The data root with the files of a dataset; None if it has none, or needs none."""
    known = DATASETS.get(name)
    if known.kind in ("builtin", "generic"):
        return None
    folders = (folder for folder in roots_of(known, root) if search(known, folder) is not None)
    return next((folder.resolve() for folder in folders), None)


def remembered_root(name: str, given: Path | None, remembered: Mapping[str, Path]) -> Path | None:
    """The given data root, else the remembered one if it still holds the dataset."""
    before = remembered.get(name)
    if given is not None or before is None or not before.is_dir():
        return given
    return before if found_root(name, before) else None


def locate_sites(known: Known, path: Path | None) -> Source:
    """The files of a dataset of sites, which are in one folder."""
    if known.find_sites is None:
        raise AccordError(
            f"'partition.scheme': by-folder is for your own images, with data.name folder, npz or "
            f"parquet; found {known.name!r}. Choose another scheme."
        )
    if path is None:
        raise AccordError(f"{known.name!r} needs `data.path`: a folder with one entry per site.")
    found = path.expanduser()
    if not found.is_dir():
        raise AccordError(
            f"`data.path` {path}: partition.scheme by-folder expects a folder with one "
            f"{'folder' if known.name == 'folder' else 'file'} for each site; found "
            f"{'a file' if found.exists() else 'nothing'}. Correct the path."
        )
    return known.find_sites(found)


def search(known: Known, root: Path) -> Source | None:
    """A named dataset in one data root: a pair of parquet files, official files or a folder."""
    for folder in _places(known, root):
        source = find_pair(folder, known.name) or known.find(folder)
        if source is not None:
            return source
    own = root / known.name
    return find_parquet(own) if own.is_dir() else None


def advice(known: Known, root: Path) -> str:
    """Advice on which files to put into which folder, in all accepted formats."""
    name = known.name
    fetch = f", or run `accord data --download {name}`" if name in DOWNLOADS else ""
    return (
        f"put {known.needs}, or {name}-train.parquet and {name}-test.parquet, into {root} or "
        f"{root / name} (the latter may hold the Hugging Face hub's parquet files instead){fetch}"
    )


def _places(known: Known, root: Path) -> Iterator[Path]:
    yield from (root, root / known.name)
    yield from (root / place for place in known.places)


def _builtin(known: Known, path: Path | None, root: Path | None) -> Source:
    if path is not None:
        raise AccordError(f"{known.name!r} needs no files; remove `data.path` ({path}).")
    if root is not None:
        _existing(root, "the data root")
    source = known.find(Path())
    assert source is not None
    return source


def _generic(known: Known, path: Path | None) -> Source:
    if path is None:
        raise AccordError(f"{known.name!r} needs `data.path`: {known.needs}.")
    found = path.expanduser()
    if not found.exists():
        raise AccordError(f"`data.path` {path} does not exist; expected {known.needs}.")
    source = known.find(found)
    if source is None:
        raise AccordError(f"{path}: expected {known.needs}; found none. Correct `data.path`.")
    return source


def _existing(path: Path, what: str) -> Path:
    folder = path.expanduser()
    if not folder.is_dir():
        raise AccordError(f"{what} {path}: expected a folder that exists. Create or correct it.")
    return folder
