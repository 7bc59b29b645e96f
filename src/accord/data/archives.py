"""CIFAR-10 and CIFAR-100 in their authors' format: pickles, which are read without running code."""

from __future__ import annotations

import io
import pickle
import re
import tarfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.core.reading import read_plain
from accord.data.formats import damaged
from accord.data.images import Bytes, Labels
from accord.data.raw import Part, Raw, Request, Source, as_labels, check_labels

# The errors that a malformed pickle can raise while it is interpreted.
_MALFORMED = (
    pickle.UnpicklingError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    IndexError,
    AttributeError,
    OverflowError,
    MemoryError,
    RecursionError,
)

MOST_BATCH, MOST_ARCHIVE = 2**28, 2**30  # bytes; the largest real ones are 155 and 187 million
_CIFAR10 = (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",))
_CIFAR100 = (("train",), ("test",))


def find_cifar10(folder: Path) -> Source | None:
    return _find(folder, "cifar-10-python.tar.gz", "cifar-10-batches-py", *_CIFAR10)


def find_cifar100(folder: Path) -> Source | None:
    return _find(folder, "cifar-100-python.tar.gz", "cifar-100-python", *_CIFAR100)


def _find(
    folder: Path, archive: str, unpacked: str, train: Sequence[str], test: Sequence[str]
) -> Source | None:
    """The unpacked batches (in `folder` or below it), or else the archive."""
    for place in (folder / unpacked, folder):
        files = [place / name for name in (*train, *test)]
        if all(path.is_file() for path in files):
            reader = _reader(partial(_load_files, place), train, test)
            return Source("python batches", place, partial(list, files), reader)
    path = folder / archive
    if path.is_file():
        reader = _reader(partial(_load_members, path), train, test)
        return Source("python archive", folder, lambda: [path], reader)
    return None


Batches = dict[str, tuple[Path, bytes]]


def _reader(
    load: Callable[[Sequence[str]], Batches], train: Sequence[str], test: Sequence[str]
) -> Callable[[Request], Raw]:
    def read(request: Request) -> Raw:
        batches = load([*train, *test])
        return Raw(
            _part([batches[name] for name in train], request),
            _part([batches[name] for name in test], request),
        )

    return read


def _load_files(place: Path, names: Sequence[str]) -> Batches:
    return {name: (place / name, read_plain(place / name, MOST_BATCH)) for name in names}


def _load_members(archive: Path, names: Sequence[str]) -> Batches:
    """The wanted members, read into memory. No file is written to a path from the archive."""
    found: Batches = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            total = 0
            for member in tar:
                total += member.size
                if member.size > MOST_BATCH or total > MOST_ARCHIVE:
                    raise damaged(archive, f"{member.name!r} unpacks to more than is expected")
                name = member.name.rpartition("/")[2]
                file = tar.extractfile(member) if name in names and member.isfile() else None
                if file is not None:
                    found[name] = (archive / member.name, file.read())
    except (tarfile.TarError, EOFError, OSError, ValueError, zlib.error) as error:
        raise damaged(archive, error) from None
    missing = [name for name in names if name not in found]
    if missing:
        raise damaged(archive, f"it does not contain {', '.join(missing)}")
    return found


def _part(batches: list[tuple[Path, bytes]], request: Request) -> Part:
    contents = [(where, _unpickle(data, where)) for where, data in batches]
    images = [_images(content, where) for where, content in contents]
    labels, coarse = [], []
    for (where, content), pixels in zip(contents, images, strict=True):
        key = "fine_labels" if "fine_labels" in content else "labels"
        labels.append(_numbers(content, key, len(pixels), where))
        check_labels(labels[-1], request.classes, where)
        if "coarse_labels" in content:
            coarse.append(_numbers(content, "coarse_labels", len(pixels), where))
    columns = {"coarse_label": np.concatenate(coarse).astype(np.str_)} if coarse else {}
    return Part(np.concatenate(images), np.concatenate(labels), found=(32, 32), columns=columns)


def _numbers(content: dict[str, Any], key: str, count: int, where: Path) -> Labels:
    values = content.get(key, [])
    if not isinstance(values, list) or not all(
        isinstance(value, int) and abs(value) < 2**31 for value in values
    ):
        raise damaged(where, f"expected `{key}`, a list of whole numbers")
    return as_labels(np.array(values, np.int64), count, where)


def _images(content: dict[str, Any], where: Path) -> Bytes:
    data = content.get("data")
    if (
        not isinstance(data, np.ndarray)
        or data.dtype != np.uint8
        or data.shape[1:] != (3072,)
        or len(data) == 0
    ):
        raise damaged(where, "expected `data`, a uint8 array of 3072 columns")
    return np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


# Pickles -----------------------------------------------------------------------------------------


def _unpickle(data: bytes, where: Path) -> dict[str, Any]:
    try:
        # latin1 is needed, because Python 2 wrote the files and stored the pixels as byte strings.
        content = _ArraysOnly(io.BytesIO(data), encoding="latin1").load()
        if not isinstance(content, dict):
            raise pickle.UnpicklingError(f"expected a dictionary, found {type(content).__name__}")
        return {
            str(key): value.array() if isinstance(value, _Array) else value
            for key, value in content.items()
        }
    except _ForbiddenError as error:
        raise AccordError(
            f"{where}: this pickle asks for {error}, which a CIFAR file never needs; it is refused "
            "because it could run code. Download the file again from its authors."
        ) from None
    except _MALFORMED as error:
        raise damaged(where, error) from None


class _ForbiddenError(Exception):
    """A pickle names an object other than a plain array. This is not an UnpicklingError."""


class _Type:
    """A replacement for numpy.dtype, which does not check its state and can crash on a bad one."""

    def __init__(self, name: str, *_: object) -> None:
        if not re.fullmatch("[uib][1248]", name):
            raise _ForbiddenError(f"an array of type {name}")
        self.name, self.order = name, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]


class _Array:
    """A replacement for numpy.ndarray, for the same reason. `array` checks and makes a real one."""

    def __init__(self, *_: object) -> None:
        self._state: tuple[Any, ...] = ()

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self._state = state

    def array(self) -> NDArray[Any]:
        _, shape, kind, fortran, raw = self._state
        data = raw.encode("latin1") if isinstance(raw, str) else raw
        dtype = np.dtype(kind.name).newbyteorder(kind.order)
        return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def _encode(text: str, encoding: str) -> bytes:
    # Python 3 writes bytes like this in the old protocols. No other use of `encode` is needed.
    if encoding != "latin1":
        raise _ForbiddenError(f"_codecs.encode({encoding!r})")
    return text.encode("latin1")


_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _Array,  # NumPy 1
    ("numpy._core.multiarray", "_reconstruct"): _Array,  # NumPy 2
    ("numpy", "ndarray"): _Array,  # the first argument of _reconstruct
    ("numpy", "dtype"): _Type,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    """An unpickler of dictionaries, lists, text, numbers and arrays that refuses other names."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _ForbiddenError(f"{module}.{name}")
        return _ALLOWED[module, name]
