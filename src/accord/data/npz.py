""".npz files: images, labels, optional class names, and further arrays as columns."""

from __future__ import annotations

import re
import zipfile
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.data.columns import as_text
from accord.data.formats import array_part, damaged
from accord.data.npz_members import check_members
from accord.data.raw import Columns, Part, Raw, Request, Source

MOST_CLASSES = 100_000
Arrays = dict[str, NDArray[Any]]

# The errors that a damaged archive raises. RuntimeError means an unknown compression or encryption.
_BROKEN = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    KeyError,
    MemoryError,
    OSError,
    NotImplementedError,
    OverflowError,
    RecursionError,
    RuntimeError,
    TypeError,
    ValueError,
)

_TRAIN = (("x_train", "y_train"), ("train_images", "train_labels"))
_TEST = (("x_test", "y_test"), ("test_images", "test_labels"))
_ONE = (("images", "labels"), ("x", "y"))
# The validation part of MedMNIST is not used, and its arrays are not columns.
_UNUSED = ("val_images", "val_labels", "x_val", "y_val")
_RESERVED = {key for pair in (*_TRAIN, *_TEST, *_ONE) for key in pair} | {"classes", *_UNUSED}


def find_npz(path: Path) -> Source | None:
    """One .npz file, or a folder with train.npz and optionally test.npz."""
    if path.is_file():
        return Source("npz file", path.parent, lambda: [path], lambda request: _one(path, request))
    train, test = path / "train.npz", path / "test.npz"
    if not train.is_file():
        return None
    files = [file for file in (train, test) if file.is_file()]
    return Source("npz files", path, lambda: files, lambda request: _two(files, request))


def _one(path: Path, request: Request) -> Raw:
    """The content of a file that holds train and test, or one set."""
    arrays = _load(path)
    _tell_unused(arrays, path, request)
    classes = _classes(arrays)
    train = _pair(arrays, _TRAIN)
    if train is None:
        part = _single(arrays, path, classes)
        return Raw(part, None, classes, _not_columns(arrays, [part]))
    test = _pair(arrays, _TEST)
    parts = {"train": array_part(arrays[train[0]], arrays[train[1]], path, classes)}
    if test is not None:
        parts["test"] = array_part(arrays[test[0]], arrays[test[1]], path, classes)
    columns = _split_columns(arrays, {name: len(part.labels) for name, part in parts.items()}, path)
    with_columns = [replace(part, columns=columns[name]) for name, part in parts.items()]
    remarks = _not_columns(arrays, with_columns)
    return Raw(with_columns[0], with_columns[1] if test else None, classes, remarks)


def _two(files: list[Path], request: Request) -> Raw:
    """The content of train.npz and optionally test.npz, whose class names must be equal."""
    loaded = [_load(path) for path in files]
    for arrays, path in zip(loaded, files, strict=True):
        _tell_unused(arrays, path, request)
    named = {_classes(arrays) for arrays in loaded} - {None}
    if len(named) > 1:
        raise AccordError(
            f"{files[1]}: its `classes` differ from those in train.npz. Make them equal."
        )
    classes = named.pop() if named else None
    parts = [_single(arrays, path, classes) for arrays, path in zip(loaded, files, strict=True)]
    return Raw(parts[0], parts[1] if len(parts) > 1 else None, classes)


def _single(arrays: Arrays, path: Path, classes: tuple[str, ...] | None) -> Part:
    keys = _pair(arrays, _ONE)
    if keys is None:
        raise AccordError(
            f"{path}: expected arrays x_train, y_train, x_test, y_test; or train_images, "
            "train_labels, test_images, test_labels; or images, labels; found "
            f"{', '.join(sorted(arrays)) or 'none'}. Rename the arrays."
        )
    part = array_part(arrays[keys[0]], arrays[keys[1]], path, classes)
    columns = {
        name: as_text(array)
        for name, array in arrays.items()
        if name not in _RESERVED and _rows(array) == len(part.labels)
    }
    return replace(part, columns=columns)


def _load(path: Path) -> Arrays:
    if not zipfile.is_zipfile(path):
        raise damaged(path, "it is no .npz file, or its end is missing")
    try:
        check_members(path)
        with np.load(path, allow_pickle=False) as file:
            return {name: _array(file, name, path) for name in file.files}
    except _BROKEN as error:
        raise damaged(path, error) from None


def _array(file: Any, name: str, path: Path) -> NDArray[Any]:
    try:
        array: NDArray[Any] = file[name]
    except ValueError as error:
        if "Object arrays" not in str(error):
            raise
        raise AccordError(
            f"{path}: array {name!r} holds Python objects, which are not safe to read. Save it as "
            "numbers or as fixed-length text (dtype str)."
        ) from None
    return _decoded(array, name, path) if array.dtype.kind == "S" else array


def _decoded(array: NDArray[np.bytes_], name: str, path: Path) -> NDArray[np.str_]:
    try:
        return np.char.decode(array, "utf-8")
    except UnicodeDecodeError as error:
        raise AccordError(
            f"{path}: array {name!r} is text but not UTF-8 ({error}). Save it with dtype str."
        ) from None


def _pair(arrays: Arrays, pairs: tuple[tuple[str, str], ...]) -> tuple[str, str] | None:
    return next((pair for pair in pairs if pair[0] in arrays and pair[1] in arrays), None)


def _classes(arrays: Arrays) -> tuple[str, ...] | None:
    if "classes" not in arrays:
        return None
    if arrays["classes"].size > MOST_CLASSES:
        raise AccordError(
            f"`classes`: expected at most {MOST_CLASSES:,} names; found "
            f"{arrays['classes'].size:,}. Correct the array."
        )
    return tuple(map(str, as_text(arrays["classes"])))


def _split_columns(arrays: Arrays, lengths: dict[str, int], path: Path) -> dict[str, Columns]:
    """The further arrays of each part, assigned by name (site_train, test_site) or by length."""
    columns: dict[str, Columns] = {name: {} for name in lengths}
    for key, array in arrays.items():
        if key in _RESERVED:
            continue
        stem, part = _affix(key)
        fits = [name for name, length in lengths.items() if _rows(array) == length]
        if part in fits:
            fits = [part]
        if len(fits) > 1:
            raise AccordError(
                f"{path}: array {key!r} is as long as both train and test; name it "
                f"{key}_train or {key}_test."
            )
        for name in fits:
            columns[name][stem if name == part else key] = as_text(array)
    return columns


def _affix(key: str) -> tuple[str, str]:
    """("site", "train") for site_train and train_site; (key, "") for a plain name."""
    match = re.fullmatch(r"(train|test)_(.+)|(.+)_(train|test)", key)
    if match is None:
        return key, ""
    return match[2] or match[3], match[1] or match[4]


def _rows(array: NDArray[Any]) -> int | None:
    """The number of rows of a column; None for an array that cannot be a column."""
    plain = array.ndim == 1 or (array.ndim == 2 and array.shape[1] == 1)
    return len(array) if plain else None


def _not_columns(arrays: Arrays, parts: list[Part]) -> tuple[str, ...]:
    """A remark about the arrays that are neither images nor labels nor as long as these."""
    lengths = {len(part.labels) for part in parts}
    other = [
        f"{key} {array.shape}"
        for key, array in arrays.items()
        if key not in _RESERVED and _rows(array) not in lengths
    ]
    images = " or ".join(f"{length:,}" for length in sorted(lengths))
    said = f"these arrays are not used, because a column has {images} values: {', '.join(other)}"
    return (said,) if other else ()


def _tell_unused(arrays: Arrays, path: Path, request: Request) -> None:
    unused = [name for name in _UNUSED if name in arrays]
    if unused:
        request.tell(f"{path.name}: {', '.join(unused)} are not used")
