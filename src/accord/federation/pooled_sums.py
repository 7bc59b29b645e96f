"""The stored total of all clients' sums, to which clients are added or from which they are removed.

The uploads of the other clients are not read again. The result is the same as if a removed client
had never taken part.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from operator import add
from pathlib import Path
from typing import ClassVar

from accord.checks import check_upload
from accord.closed_form.sums import Sums
from accord.core.config import Config
from accord.core.errors import AccordError
from accord.core.files import read_json, write_json
from accord.core.heap import large_blocks_apart
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing, Message, Upload


class TotalHeader(Config):
    """The briefing and the upload files of a total."""

    briefing: str
    files: tuple[str, ...]


@dataclass(frozen=True)
class Total(Message):
    """The total of several clients' sums in float64. It stays at the server."""

    header: TotalHeader
    kind: ClassVar[str] = "total"
    header_type: ClassVar[type[Config]] = TotalHeader


@large_blocks_apart()
def total_of(files: UploadFiles, keep: Path | None) -> Sums:
    """The total of the clients' sums: read from the file `keep`, or computed and stored there."""
    kept = _kept(keep, files) if keep is not None else None
    if kept is not None:
        return kept
    total = reduce(add, (Sums.of(files.load(index).tensors) for index in range(len(files))))
    if keep is not None:
        named = {"label_counts": total.counts, "feature_sums": total.sums}
        _seen(keep).unlink(missing_ok=True)
        Total(_header(files), {**named, "scatter": total.scatter}).save(keep)
        write_json(_seen(keep), _states(files))
    return total


def total_stands(files: UploadFiles, keep: Path) -> bool:
    """Whether the file `keep` holds the total of these files."""
    return _kept(keep, files) is not None


def _header(files: UploadFiles) -> TotalHeader:
    names = tuple(path.name for path in files.paths)
    return TotalHeader(briefing=files.briefing.digest, files=names)


def _seen(keep: Path) -> Path:
    """The states of the files of a total. They hold times, which the total itself does not."""
    return keep.with_suffix(".json")


def _kept(keep: Path, files: UploadFiles) -> Sums | None:
    """The stored total; None if it is damaged or does not fit, because it can be computed again."""
    states = _states(files)
    try:
        if not keep.exists() or read_json(_seen(keep)) != states:
            return None
        found = Total.load(keep)
    except (AccordError, OSError):
        return None
    if found.header != _header(files):
        return None
    t = found.tensors
    names = ("label_counts", "feature_sums", "scatter")
    if set(t) != set(names) or not all(bool(t[name].isfinite().all()) for name in names):
        return None
    return Sums(*(t[name] for name in names))


@large_blocks_apart()
def changed(total: Sums, briefing: Briefing, come: Iterable[Path], gone: Iterable[Path]) -> Sums:
    """`total` plus the uploads `come` and minus the uploads `gone`."""
    for path in come:
        total = total + _checked(path, briefing)
    for path in gone:
        total = total - _checked(path, briefing)
    if not total.total:
        raise AccordError("--remove leaves no client with images. Remove fewer clients.")
    return total


def _checked(path: Path, briefing: Briefing) -> Sums:
    upload = Upload.load(path)
    check_upload(upload, briefing, str(path))
    return Sums.of(upload.tensors)


def _states(files: UploadFiles) -> dict[str, list[int]]:
    """File → its size, and the time of its last change."""
    found = {}
    for path in files.paths:
        try:
            state = path.stat()
        except OSError:
            raise AccordError(f"{path}: expected one upload, found no such file.") from None
        found[path.name] = [state.st_size, state.st_mtime_ns]
    return found
