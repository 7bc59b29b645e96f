"""Whether a file or a folder may be written at a path that the user gave.

Nothing that Accord did not write is ever replaced: a target is free, or its content shows that it
is of the kind that is written now. Links, pipes and devices are no targets.
"""

from __future__ import annotations

import stat
from collections.abc import Callable
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.partials import partial_file, sweep
from accord.core.reading import kind_of_entry

# The files and folders of a record.
OF_RECORD = (
    *("study.yaml", "data.json", "results.csv", "sites.csv", ".lock", ".flower.lock", ".cluster"),
    *("trials", "teachers", "allocations", "logs", "flower", "tensorboard", "mlflow"),
)


def refuse_file(path: Path, option: str, problem: str, is_ours: Callable[[Path], bool]) -> None:
    """Raises AccordError unless a file can be written to `path`.

    `is_ours` says whether an existing file is of the same kind and may be replaced; `problem` is
    what is told if it may not.
    """
    said = f"{option} {path}"
    found = found_at(path)
    if found == "a folder":
        raise AccordError(f"{said} is a folder. Name a file.")
    if found not in ("nothing", "a file"):
        raise AccordError(f"{said} is {found}; expected a new file. Choose another path.")
    _refuse_place(path, said)
    if found == "a file" and not is_ours(path):
        raise AccordError(f"{said} exists and {problem}. Choose another path, or remove that file.")
    _refuse_parent(path, said)


def refuse_folder(
    path: Path, option: str, kind: str, stranger: Callable[[Path], str | None]
) -> None:
    """Raises AccordError unless a folder of this `kind` can be written to `path`.

    `stranger` names something in an existing folder that is not of this kind; None if all is.
    """
    said = f"{option} {path}".strip()
    found = found_at(path)
    if found not in ("nothing", "a folder"):
        raise AccordError(f"{said}: this is {found}. Choose another folder.")
    if found == "a folder" and Path.cwd().is_relative_to(path.resolve()):
        raise AccordError(
            f"{said}: this is the current folder or contains it. Choose another folder."
        )
    _refuse_place(path, said)
    strange = stranger(path) if found == "a folder" else None
    if strange is not None:
        raise AccordError(
            f"{said}: the folder holds {strange!r}, which is no part of a {kind} and would be "
            "lost. Choose another folder."
        )
    _refuse_unwritable(_nearest_folder(path, said), said)


def settled(path: Path) -> Path:
    """`path` without links and dots above its last name, which itself may be a link."""
    return path.resolve() if path.name in ("", "..") else path.parent.resolve() / path.name


def found_at(path: Path) -> str:
    """What is at a path, in words; a link is not followed."""
    try:
        mode = path.lstat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return "nothing"
    except OSError as error:
        raise AccordError(
            f"{path} cannot be used: {error.strerror}. Choose another path."
        ) from None
    if stat.S_ISREG(mode):
        return "a file"
    return "a link" if stat.S_ISLNK(mode) else kind_of_entry(mode)


def _refuse_place(path: Path, said: str) -> None:
    """Refuses a place among the files of a record, which only Accord itself writes."""
    absolute = settled(path)
    for folder in absolute.parents:
        is_record = (folder / "study.yaml").is_file() and (folder / "trials").is_dir()
        if is_record and absolute.relative_to(folder).parts[0] in OF_RECORD:
            raise AccordError(
                f"{said} is among the files of the record {folder}. Choose another path."
            )


def _refuse_parent(path: Path, said: str) -> None:
    """Refuses a file in a folder that does not exist, or that cannot be written."""
    if not path.absolute().parent.is_dir():
        raise AccordError(
            f"{said}: expected a file in a folder that exists; found no folder {path.parent}. Make "
            "it, or choose another path."
        )
    sweep(path.parent)
    _refuse_unwritable(path.parent, said)


def _nearest_folder(path: Path, said: str) -> Path:
    """The nearest folder above `path` that exists; the others will be made."""
    for parent in path.absolute().parents:
        found = found_at(parent.resolve())
        if found == "a folder":
            return parent
        if found != "nothing":
            raise AccordError(f"{said}: {parent} is {found}. Choose another folder.")
    raise AccordError(f"{said}: no folder of this path exists. Choose another folder.")


def _refuse_unwritable(folder: Path, said: str) -> None:
    """Refuses a folder in which no file can be made, before long work that would be lost."""
    try:
        with partial_file(folder):
            pass
    except OSError as error:
        raise AccordError(
            f"{said} cannot be written: {error.strerror or error}. Choose another path."
        ) from None
