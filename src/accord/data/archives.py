"""CIFAR-10 and CIFAR-100 as their authors publish them: pickles, read without running any code."""

from __future__ import annotations

import io
import pickle
import tarfile
import zlib
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from accord.data.formats import damaged
from accord.data.images import Bytes
from accord.data.raw import Part, Raw, Request, Source, as_labels, check_labels
from accord.errors import AccordError

# What a malformed pickle can raise while it is interpreted.
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
)

_CIFAR10 = (tuple(f"data_batch_{i}" for i in range(1, 6)), ("test_batch",))
_CIFAR100 = (("train",), ("test",))


def find_cifar10(folder: Path) -> Source | None:
    return _find(folder, "cifar-10-python.tar.gz", "cifar-10-batches-py", *_CIFAR10)


def find_cifar100(folder: Path) -> Source | None:
    return _find(folder, "cifar-100-python.tar.gz", "cifar-100-python", *_CIFAR100)


def _find(
    folder: Path, archive: str, unpacked: str, train: Sequence[str], test: Sequence[str]
) -> Source | None:
    """The unpacked batches (in `folder` or below it), else the archive."""
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
    return {name: (place / name, (place / name).read_bytes()) for name in names}


def _load_members(archive: Path, names: Sequence[str]) -> Batches:
    """The wanted members, in memory: nothing is ever extracted to a path the archive names."""
    found: Batches = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = member.name.rpartition("/")[2]
                file = tar.extractfile(member) if name in names and member.isfile() else None
                if file is not None:
                    found[name] = (archive / member.name, file.read())
    except (tarfile.TarError, EOFError, OSError, zlib.error) as error:
        raise damaged(archive, error) from None
    missing = [name for name in names if name not in found]
    if missing:
        raise damaged(archive, f"{', '.join(missing)} not inside")
    return found


def _part(batches: list[tuple[Path, bytes]], request: Request) -> Part:
    contents = [(where, _unpickle(data, where)) for where, data in batches]
    images = [_images(content, where) for where, content in contents]
    labels = []
    for (where, content), pixels in zip(contents, images, strict=True):
        key = "fine_labels" if "fine_labels" in content else "labels"
        labels.append(as_labels(content.get(key, ()), len(pixels), where))
        check_labels(labels[-1], request.classes, where)
    columns = {}
    if all("coarse_labels" in content for _, content in contents):
        coarse = [content["coarse_labels"] for _, content in contents]
        columns["coarse_label"] = np.concatenate(coarse).astype(np.str_)
        as_labels(columns["coarse_label"].astype(np.int64), sum(map(len, labels)), batches[0][0])
    return Part(np.concatenate(images), np.concatenate(labels), found=(32, 32), columns=columns)


def _images(content: dict[str, Any], where: Path) -> Bytes:
    data = content.get("data")
    if not (isinstance(data, np.ndarray) and data.dtype == np.uint8 and data.shape[1:] == (3072,)):
        raise damaged(where, "expected `data`, a uint8 array of 3072 columns")
    return np.ascontiguousarray(data.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1))


def _unpickle(data: bytes, where: Path) -> dict[str, Any]:
    try:
        # latin1: the files were written by Python 2, whose byte strings hold the pixels.
        content = _ArraysOnly(io.BytesIO(data), encoding="latin1").load()
    except _ForbiddenError as error:
        raise AccordError(
            f"{where}: this pickle asks for {error}, which a CIFAR file never needs; it is refused "
            "because it could run code. Fetch the file again from its authors."
        ) from None
    except _MALFORMED as error:
        raise damaged(where, error) from None
    if not isinstance(content, dict):
        raise damaged(where, f"expected a dictionary, found {type(content).__name__}")
    return {k.decode("latin1") if isinstance(k, bytes) else str(k): v for k, v in content.items()}


class _ForbiddenError(Exception):
    """A pickle names something other than a plain array; deliberately no UnpicklingError."""


def _dtype(name: str, align: int = 0, copy: int = 0) -> np.dtype[Any]:
    # Python 2 wrote the flags as integers, which new NumPy versions no longer take.
    dtype = np.dtype(name, align=bool(align), copy=bool(copy))
    if dtype.kind not in "iub":
        raise _ForbiddenError(f"an array of type {name}")
    return dtype


def _encode(text: str, encoding: str) -> bytes:
    # How Python 3 writes bytes in the old protocols; any other use of `encode` is not ours.
    if encoding != "latin1":
        raise _ForbiddenError(f"_codecs.encode({encoding!r})")
    return text.encode("latin1")


# NumPy moved these between versions 1 and 2, so they are taken from live objects, not imported.
_RECONSTRUCT = np.zeros(0).__reduce__()[0]
_SCALAR = np.int64(0).__reduce__()[0]
_ALLOWED: dict[tuple[str, str], Any] = {
    ("numpy.core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy._core.multiarray", "_reconstruct"): _RECONSTRUCT,
    ("numpy.core.multiarray", "scalar"): _SCALAR,
    ("numpy._core.multiarray", "scalar"): _SCALAR,
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): _dtype,
    ("_codecs", "encode"): _encode,
}


class _ArraysOnly(pickle.Unpickler):
    """Builds dictionaries, lists, text, numbers and NumPy arrays; refuses every other name."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in _ALLOWED:
            raise _ForbiddenError(f"{module}.{name}")
        return _ALLOWED[module, name]
