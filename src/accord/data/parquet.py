"""The search for parquet files of images in the layouts of the Hugging Face hub."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

from accord.core.errors import AccordError
from accord.data.raw import Raw, Request, Source

_TEST_WORDS = ("test", "validation", "valid", "val")  # the first that exists is the test part


def find_parquet(path: Path) -> Source | None:
    """One file, or a folder with train and test in its file names; without these, it is one set."""
    if path.is_file():
        return parquet_source(path.parent, [path], [])
    folder = _folder(path)
    return None if folder is None else _split(folder)


def find_pair(folder: Path, name: str) -> Source | None:
    """`<name>-train.parquet` and `<name>-test.parquet` in `folder`."""
    train, test = folder / f"{name}-train.parquet", folder / f"{name}-test.parquet"
    there = [path for path in (train, test) if path.is_file()]
    if len(there) == 1:
        missing = test if there[0] == train else train
        raise AccordError(
            f"{there[0]} exists, but {missing.name} is not in the same folder. Add it."
        )
    return parquet_source(folder, [train], [test]) if there else None


def parquet_source(
    where: Path, train: list[Path], test: list[Path], unused: list[Path] | None = None
) -> Source:
    files = [*train, *test]
    return Source("parquet", where, lambda: files, partial(_read, train, test, unused or []))


def _folder(path: Path) -> Path | None:
    """The folder of the files: `path`, data/, or the only folder of a hub repository."""
    for folder in (path, path / "data"):
        if any(folder.glob("*.parquet")):
            return folder
    below = sorted({file.parent for file in path.glob("*/*.parquet")})
    if len(below) > 1:
        names = ", ".join(folder.name for folder in below)
        raise AccordError(
            f"{path}: several folders hold parquet files ({names}). Set `data.path` to one of them."
        )
    return below[0] if below else None


def _split(folder: Path) -> Source:
    files = sorted(folder.glob("*.parquet"))
    words = {path: set(re.split(r"[^a-z]+", path.stem.lower())) for path in files}
    train = [path for path in files if words[path] & {"train", "training"}]
    held_out = [[path for path in files if word in words[path]] for word in _TEST_WORDS]
    test = next((paths for paths in held_out if paths), [])
    if test and not train:
        raise AccordError(
            f"{folder}: {test[0].name} exists, but no train*.parquet. Add the training files."
        )
    if not train:
        return parquet_source(folder, files, [])
    unused = [path for path in files if path not in {*train, *test}]
    return parquet_source(folder, train, test, unused)


def _read(train: list[Path], test: list[Path], unused: list[Path], request: Request) -> Raw:
    from accord.data.parquet_reader import read  # it imports pyarrow, which is slow

    return read(train, test, unused, request)
