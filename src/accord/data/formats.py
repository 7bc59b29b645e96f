"""Array formats: idx (MNIST), .mat (SVHN), .npz, and the digits of scikit-learn."""

from __future__ import annotations

import gzip
import importlib.metadata
import math
import struct
import zlib
from contextlib import AbstractContextManager, nullcontext
from io import BufferedReader
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.core.reading import open_plain
from accord.core.text import one_line
from accord.data.images import Bytes
from accord.data.raw import Part, Raw, Request, Source, as_images, as_labels, check_labels
from accord.data.room import refuse_without_room


def damaged(path: Path, error: BaseException | str) -> AccordError:
    """The error for a file that is incomplete or not of the expected kind."""
    return AccordError(
        f"{path}: the file cannot be read ({one_line(str(error))}). If it is another kind of file, "
        "change `data.name`; if it is damaged, get it again."
    )


def array_part(images: Any, labels: Any, where: Path, classes: tuple[str, ...] | None) -> Part:
    """A checked part, made from two arrays of one file."""
    pixels = as_images(np.asarray(images), where)
    targets = as_labels(labels, len(pixels), where)
    check_labels(targets, classes, where)
    return Part(pixels, targets, found=(pixels.shape[1], pixels.shape[2]))


# idx ---------------------------------------------------------------------------------------------


def find_idx(folder: Path, other: bytes) -> Source | None:
    """MNIST's four files in `folder`, each gzipped or plain.

    Fashion-MNIST has the same file names. If the training labels start with `other`, the first
    labels of the other dataset, the folder does not hold the wanted dataset.
    """
    wanted = [_idx_file(folder, part, kind) for part in ("train", "t10k") for kind in _IDX_KINDS]
    files = [path for path in wanted if path is not None]
    if len(files) < 4 or _first_labels(files[1], len(other)) == other:
        return None

    def read(request: Request) -> Raw:
        return Raw(_idx_part(files[0], files[1], request), _idx_part(files[2], files[3], request))

    return Source("idx files", folder, lambda: files, read)


_IDX_KINDS = ("images-idx3-ubyte", "labels-idx1-ubyte")


def _idx_file(folder: Path, part: str, kind: str) -> Path | None:
    # Some unpacked copies have a dot in their names, as in train-images.idx3-ubyte.
    names = [f"{part}-{kind}.gz", f"{part}-{kind}", f"{part}-{kind.replace('-idx', '.idx')}"]
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _first_labels(path: Path, count: int) -> bytes:
    """The first labels of an idx file. A damaged file gives none; its reader reports the error."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
            return bytes(file.read(8 + count)[8:])
    except (EOFError, OSError, zlib.error):
        return b""


def _idx_part(images: Path, labels: Path, request: Request) -> Part:
    pixels = as_images(read_idx(images), images)
    targets = as_labels(read_idx(labels), len(pixels), labels)
    check_labels(targets, request.classes, labels)
    return Part(pixels, targets, found=(pixels.shape[1], pixels.shape[2]))


def _unpacked(
    file: BufferedReader, path: Path
) -> AbstractContextManager[gzip.GzipFile | BufferedReader]:
    return gzip.open(file) if path.suffix == ".gz" else nullcontext(file)


def read_idx(path: Path) -> Bytes:
    """The values of an idx file of unsigned bytes: a magic number, the sizes, then the values."""
    try:
        with open_plain(path) as plain, _unpacked(plain, path) as file:
            start = file.read(4)
            if len(start) < 4 or start[:3] != b"\0\0\x08":
                raise damaged(path, "it does not start as an idx file of unsigned bytes")
            header = file.read(4 * start[3])
            if len(header) < 4 * start[3] or start[3] > 4:
                raise damaged(path, "it ends inside its header, or has more than 4 dimensions")
            shape = struct.unpack(f">{start[3]}I", header)
            refuse_without_room(shape, 1, path)
            values = file.read(math.prod(shape) + 1)  # one more shows that the file is too long
    except (EOFError, OSError, zlib.error) as error:
        raise damaged(path, error) from None
    if len(values) != math.prod(shape):
        raise damaged(path, f"its header promises shape {shape}, but other bytes follow")
    return np.frombuffer(values, np.uint8).reshape(shape)


# .mat --------------------------------------------------------------------------------------------


def find_svhn(folder: Path) -> Source | None:
    """SVHN's cropped digits, train_32x32.mat and test_32x32.mat."""
    train, test = folder / "train_32x32.mat", folder / "test_32x32.mat"
    if not (train.is_file() and test.is_file()):
        return None

    def read(request: Request) -> Raw:
        return Raw(_mat_part(train, request), _mat_part(test, request))

    return Source(".mat files", folder, lambda: [train, test], read)


def _mat_part(path: Path, request: Request) -> Part:
    from scipy.io import loadmat, whosmat  # slow to import, rarely needed
    from scipy.io.matlab import MatReadError

    try:
        for _, shape, _ in whosmat(path):  # from the headers alone
            refuse_without_room(shape, 8, path)
        content = loadmat(path, variable_names=["X", "y"])
    except (
        MatReadError,
        NotImplementedError,
        EOFError,
        IndexError,
        KeyError,
        MemoryError,
        OSError,
        TypeError,
        ValueError,
        struct.error,
        zlib.error,
    ) as error:
        raise damaged(path, error) from None
    if "X" not in content or "y" not in content or np.ndim(content["X"]) != 4:
        raise damaged(path, "expected a four-dimensional array X and labels y")
    images = np.ascontiguousarray(np.moveaxis(content["X"], 3, 0))
    labels = as_labels(content["y"], len(images), path)
    # The labels of the file start at 1; digit 0 has the label 10. The label 0 is not valid.
    check_labels(labels - 1, request.classes, path)
    return array_part(images, labels % 10, path, request.classes)


# scikit-learn's digits ---------------------------------------------------------------------------


def find_digits(_: Path) -> Source:
    """The 1,797 digits of 8×8 pixels in scikit-learn. There is no official test set."""

    def read(_: Request) -> Raw:
        from sklearn.datasets import load_digits  # slow to import, rarely needed

        digits = load_digits()
        pixels: NDArray[Any] = np.round(digits.images * 255 / 16).astype(np.uint8)
        return Raw(Part(pixels[..., None], digits.target.astype(np.int64), found=(8, 8)), None)

    version = importlib.metadata.version("scikit-learn")
    return Source(
        "inside scikit-learn", Path("scikit-learn"), list, read, salt=f"scikit-learn {version}"
    )
