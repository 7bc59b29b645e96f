"""A cache of decoded datasets on disk: images are decoded once, and workers share the memory.

An entry is a folder of .npy files and a meta.json with their shapes and checksums, and with a
checksum of its own. Its name is a hash of the source's content, so that an old entry is never used
for a changed source.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock
from numpy.typing import NDArray

from accord.core.errors import AccordError
from accord.core.reading import json_of, open_plain, read_text, refuse_special
from accord.data.images import Dataset, Images
from accord.data.raw import Source, Tell

FORMAT = 4  # increase it when decoding, conversion or the layout of an entry changes


def cache_root() -> Path:
    """$ACCORD_CACHE, or else ~/.cache/accord/decoded.

    It is absolute, because a worker on another machine has another working directory.
    """
    chosen = os.environ.get("ACCORD_CACHE")
    return Path(chosen).expanduser().absolute() if chosen else Path.home() / ".cache/accord/decoded"


def key_of(source: Source, *parts: object) -> str:
    """A hash over the source's file names and bytes, its folders, and over `parts`."""
    folders = [path.relative_to(source.where).as_posix() for path in source.folders()]
    digest = hashlib.sha256(repr((FORMAT, source.salt, parts, folders)).encode())
    files = source.files()
    for path in files:
        # A single file may be renamed. With several files, the names define parts and classes.
        name = path.relative_to(source.where).as_posix() if len(files) > 1 else ""
        digest.update(f"\n{name}\n{_sha256(path)}".encode())
    return digest.hexdigest()[:32]


def obtain(key: str, build: Callable[[], Dataset], tell: Tell) -> Path:
    """The folder of the verified entry `key`. If there is none, `build` makes the dataset."""
    entry = cache_root() / key
    if entry.exists() and not _damage(entry):
        return entry
    # One process decodes. Other processes that need the same entry wait here and then find it.
    lock = FileLock(entry.parent / f"{key}.lock")
    with _writing_to(entry.parent):
        entry.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    try:
        _ensure(entry, build, tell)
    finally:
        lock.release()
    return entry


@contextmanager
def _writing_to(root: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise AccordError(
            f"the decoded images could not be written to {root} ({error}). Free some space, make "
            "the folder writable, or set ACCORD_CACHE to another folder."
        ) from error


def _ensure(entry: Path, build: Callable[[], Dataset], tell: Tell) -> None:
    """Builds the entry unless another process has just built it. The caller holds the lock."""
    problem = _damage(entry) if entry.exists() else None
    if entry.exists() and problem is None:
        return
    if problem is not None:
        tell(f"the cached images in {entry} are damaged ({problem}); they are decoded again")
    dataset = build()
    with _writing_to(entry.parent):
        _publish(dataset, entry)


def _publish(dataset: Dataset, entry: Path) -> None:
    """Writes the entry under a temporary name and then renames it."""
    temporary = entry.with_name(f".{entry.name}.part")
    if temporary.exists():  # left by a process that was killed: this process holds the lock
        shutil.rmtree(temporary)
    temporary.mkdir()
    try:
        write(dataset, temporary)
        if entry.exists():
            shutil.rmtree(entry)
        temporary.rename(entry)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)  # exists only after an error


# Entries -----------------------------------------------------------------------------------------


def write(dataset: Dataset, folder: Path) -> None:
    parts = {"train": dataset.train, "test": dataset.test}
    meta = {
        "name": dataset.name,
        "classes": dataset.classes,
        "mean": dataset.mean,
        "std": dataset.std,
        "augment": dataset.augment,
        "remarks": dataset.remarks,
        "parts": {
            name: _write_part(part, name, folder)
            for name, part in parts.items()
            if part is not None
        },
    }
    text = json.dumps({**meta, "seal": _seal(meta)}, indent=1, ensure_ascii=False)
    (folder / "meta.json").write_text(text, "utf-8")


def _write_part(part: Images, name: str, folder: Path) -> dict[str, Any]:
    # The files of columns are numbered: column names are user data and may not be file names.
    columns = {column: f"{name}-column-{i}.npy" for i, column in enumerate(part.columns)}
    arrays: dict[str, NDArray[Any]] = {
        f"{name}-images.npy": part.images,
        f"{name}-labels.npy": part.labels,
        **{file: part.columns[column] for column, file in columns.items()},
    }
    for file, array in arrays.items():
        np.save(folder / file, array, allow_pickle=False)
    files = {
        file: {"shape": array.shape, "sha256": _sha256(folder / file)}
        for file, array in arrays.items()
    }
    return {"columns": columns, "files": files}


def read(folder: Path) -> Dataset:
    """An entry as a Dataset with memory-mapped images. Shapes are checked, checksums are not."""
    try:
        meta = _meta(folder)
        parts = {name: _read_part(part, name, folder) for name, part in meta["parts"].items()}
        return Dataset(
            name=meta["name"],
            classes=tuple(meta["classes"]),
            train=parts["train"],
            test=parts.get("test"),
            mean=tuple(meta["mean"]),
            std=tuple(meta["std"]),
            augment=meta["augment"],
            folder=folder,
            remarks=tuple(meta["remarks"]),
        )
    except (AccordError, *_ODD) as error:
        raise AccordError(
            f"{folder}: expected decoded images; they are missing or damaged ({error}). Delete the "
            "folder; the next run makes it again."
        ) from None


def _read_part(meta: dict[str, Any], name: str, folder: Path) -> Images:
    def load(file: str, mode: Any = None) -> NDArray[Any]:
        refuse_special(folder / file)
        array: NDArray[Any] = np.load(folder / file, mmap_mode=mode, allow_pickle=False)
        if list(array.shape) != meta["files"][file]["shape"]:
            raise ValueError(f"{file} has shape {array.shape}")
        return array

    return Images(
        images=load(f"{name}-images.npy", "r"),
        labels=load(f"{name}-labels.npy"),
        columns={column: load(file) for column, file in meta["columns"].items()},
    )


def _damage(entry: Path) -> str | None:
    """The damage of an entry, or None if every file still has the checksum of its meta.json."""
    try:
        meta = _meta(entry)
        files: Iterable[tuple[str, dict[str, str]]] = [
            item for part in meta["parts"].values() for item in part["files"].items()
        ]
        for name, facts in files:
            if _sha256(entry / name) != facts["sha256"]:
                return f"{name} has changed"
    except FileNotFoundError as error:
        return f"{Path(str(error.filename)).name} is missing"
    except (AccordError, OSError) as error:
        return str(error)
    except _ODD:
        return "meta.json cannot be read, or was changed"
    return None


_ODD = (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError)


def _meta(entry: Path) -> dict[str, Any]:
    """The content of meta.json. Raises ValueError if a value was changed."""
    meta = json_of(read_text(entry / "meta.json"))
    if not isinstance(meta, dict) or meta.pop("seal", None) != _seal(meta):
        raise ValueError("meta.json does not fit its checksum")
    return meta


def _seal(meta: dict[str, Any]) -> str:
    """A checksum of everything in meta.json: constants, classes, and the checksums of all files."""
    return hashlib.sha256(json.dumps(meta, ensure_ascii=False).encode()).hexdigest()


def _sha256(path: Path) -> str:
    with open_plain(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
