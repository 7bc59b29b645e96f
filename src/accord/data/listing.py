"""The files below a folder, whatever a user has put there.

Links to folders are refused below the first level, so that a loop of links ends and no image is
lost without a word. So are pipes and links to nothing. A name that is used must be printable UTF-8,
because it becomes the name of a class or of a site.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.reading import kind_of_entry

DEEPEST = 100  # folders inside each other


def files_below(folder: Path, *, odd: bool = False) -> Iterator[Path]:
    """All plain files in and below a folder, except hidden files and files in hidden folders.

    With `odd`, pipes and links to nothing are files too: whoever opens them tells what they are.
    """
    waiting = [(folder, 0)]
    while waiting:
        here, depth = waiting.pop()
        for name in entries(here):
            path = here / name
            if path.is_file() or (odd and not path.is_dir()):
                yield path
            elif path.is_dir() and not path.is_symlink() and depth < DEEPEST:
                waiting.append((path, depth + 1))
            else:
                raise AccordError(
                    f"{path} is {_kind(path)}; expected plain files and folders of them. Put the "
                    "files themselves there, or remove it."
                )


def _kind(path: Path) -> str:
    if path.is_symlink():
        return "a link to a folder" if path.is_dir() else "a link to no file"
    return f"below {DEEPEST} folders" if path.is_dir() else kind_of_entry(path.stat().st_mode)


def folders_in(folder: Path) -> list[Path]:
    """The visible folders in a folder, sorted by name."""
    found = sorted(name for name in entries(folder) if (folder / name).is_dir())
    return [usable(folder / name) for name in found]


def entries(folder: Path) -> list[str]:
    """The names of the visible entries of a folder."""
    try:
        return [path.name for path in folder.iterdir() if not path.name.startswith(".")]
    except OSError as error:
        raise AccordError(
            f"{folder}: the folder cannot be read ({error.strerror or error}). Make it readable."
        ) from None


def usable(path: Path) -> Path:
    """`path`, if its name can be a name of a class, a site or an image in a message."""
    name = path.name
    if not name.isprintable():  # this is also true for a name that is no UTF-8
        raise AccordError(
            f"{path.parent}: the name {name!a} is not UTF-8, or holds signs that cannot be "
            "printed. Rename this file or folder."
        )
    return path
