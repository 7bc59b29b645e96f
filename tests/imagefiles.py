"""Writes tiny real files of every format the readers take."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import pickle
import struct
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from PIL import Image

from accord.data.images import Bytes, Labels
from accord.data.raw import Part, Raw, Request, Source


def pixels(count: int, height: int, width: int, channels: int, seed: int = 0) -> Bytes:
    """Random images, all different."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (count, height, width, channels), np.uint8)


def labels(count: int, classes: int = 10, seed: int = 0) -> Labels:
    return np.random.default_rng(seed).integers(0, classes, count)


def request(**changes: Any) -> Request:
    values: dict[str, Any] = {"name": "x", "size": None, "classes": None, "tell": lambda _: None}
    return Request(**{**values, **changes})


def read(source: Source | None, **wishes: Any) -> Raw:
    """What a found source holds."""
    assert source is not None
    return source.read(request(**wishes))


def held_out(raw: Raw) -> Part:
    assert raw.test is not None
    return raw.test


def cut(path: Path, share: float = 0.5) -> None:
    """Keep only the first `share` of a file, as a broken download does."""
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * share)])


class Attack:
    """Creates `target` when it is unpickled."""

    def __init__(self, target: Path) -> None:
        self.target = target

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.target}",)


def encode(image: Bytes, kind: str = "PNG") -> bytes:
    """One image, (H, W, C), losslessly."""
    buffer = io.BytesIO()
    picture = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    picture.save(buffer, kind, lossless=True)
    return buffer.getvalue()


def save_image(path: Path, image: Bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(encode(image))


def write_site_folders(folder: Path, tree: Mapping[str, Any]) -> dict[str, Bytes]:
    """Folders as nested mappings, with a number of images in each; all images differ.

    Returns path → image.
    """
    written: dict[str, Bytes] = {}
    for name, inside in tree.items():
        if isinstance(inside, Mapping):
            below = write_site_folders(folder / name, inside)
            written |= {f"{name}/{path}": image for path, image in below.items()}
            continue
        for number in range(inside):
            seed = hash_of(f"{folder}/{name}/{number}")
            written[f"{name}/{number}.png"] = pixels(1, 4, 4, 1, seed)[0]
            save_image(folder / name / f"{number}.png", written[f"{name}/{number}.png"])
    return written


def hash_of(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "little")


def write_idx(folder: Path, part: str, images: Bytes, targets: Labels, packed: bool = True) -> None:
    """Images (N, H, W, 1) and labels as the two idx files of a part ("train" or "t10k")."""
    folder.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images[..., 0]), ("labels-idx1", targets)):
        head = struct.pack(f">HBB{array.ndim}I", 0, 8, array.ndim, *array.shape)
        data = head + array.astype(np.uint8).tobytes()
        path = folder / f"{part}-{kind}-ubyte{'.gz' if packed else ''}"
        path.write_bytes(gzip.compress(data) if packed else data)


def write_idx_pair(folder: Path, packed: bool = True) -> tuple[Bytes, Labels, Bytes, Labels]:
    arrays = pixels(6, 5, 4, 1, 1), labels(6), pixels(3, 5, 4, 1, 2), labels(3)
    write_idx(folder, "train", arrays[0], arrays[1], packed)
    write_idx(folder, "t10k", arrays[2], arrays[3], packed)
    return arrays


def python2_batch(data: Bytes, fields: Mapping[str, Sequence[int]]) -> bytes:
    """A CIFAR batch exactly as Python 2 and NumPy 1 pickled it: byte strings, integer flags."""

    def text(value: bytes) -> bytes:
        return b"U" + bytes([len(value)]) + value

    def number(value: int) -> bytes:
        return b"J" + struct.pack("<i", value)

    raw = data.tobytes()
    dtype = b"cnumpy\ndtype\n" + text(b"u1") + b"K\0K\1\x87R(K\3" + text(b"|") + b"NNN"
    dtype += number(-1) * 2 + b"K\0tb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\nK\0\x85" + text(b"b") + b"tR"
    array += b"(K\1" + number(data.shape[0]) + number(data.shape[1]) + b"\x86" + dtype + b"\x89"
    array += b"T" + struct.pack("<i", len(raw)) + raw + b"tb"
    items = text(b"data") + array
    for name, values in fields.items():
        items += text(name.encode()) + b"](" + b"".join(map(number, values)) + b"e"
    return b"\x80\x02}(" + items + b"u."


def python3_batch(data: Bytes, fields: Mapping[str, Sequence[object]]) -> bytes:
    return pickle.dumps({"data": data, **fields}, protocol=2)


def flat(images: Bytes) -> Bytes:
    """(N, 32, 32, 3) as CIFAR stores it: rows of 3072, channel after channel."""
    return np.ascontiguousarray(images.transpose(0, 3, 1, 2)).reshape(len(images), 3072)


def cifar10_batches(write: Any = python2_batch) -> tuple[dict[str, bytes], Bytes, Labels]:
    """Six batches of two images each, and what they hold in order."""
    images, targets = pixels(12, 32, 32, 3), labels(12)
    names = [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"]
    batches = {
        name: write(
            flat(images[2 * i : 2 * i + 2]), {"labels": targets[2 * i : 2 * i + 2].tolist()}
        )
        for i, name in enumerate(names)
    }
    return batches, images, targets


def write_files(folder: Path, files: dict[str, bytes]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (folder / name).write_bytes(data)


def write_tar(path: Path, folder: str, files: dict[str, bytes]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, data in files.items():
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


def write_parquet(
    path: Path,
    images: Sequence[Bytes] | Bytes,
    targets: Labels | list[Any],
    *,
    kind: str = "PNG",
    image: str = "image",
    label: str = "label",
    classes: str | None = None,
    names: list[str] | None = None,
    columns: dict[str, list[Any]] | None = None,
) -> None:
    """Parquet as the hub writes it: `names` as its JSON, `classes` as a plain key."""
    cells = [{"bytes": encode(item, kind), "path": f"{i}.png"} for i, item in enumerate(images)]
    table = pa.table({image: cells, label: list(targets), **(columns or {})})
    metadata: dict[str, str] = {} if classes is None else {"classes": classes}
    if names is not None:
        features = {image: {"_type": "Image"}, label: {"names": names, "_type": "ClassLabel"}}
        metadata["huggingface"] = json.dumps({"info": {"features": features}})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table.replace_schema_metadata(metadata), path)


def save_npz(path: Path, **arrays: NDArray[Any] | list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    plain: dict[str, Any] = {name: np.asarray(array) for name, array in arrays.items()}
    np.savez(path, **plain)
    return path
