"""One .npz or parquet file per site, in one folder.

The name of a file is that of its site: clinic-a.npz. A site may have two files, clinic-a-train.npz
and clinic-a-test.npz, or a folder of files that the format reads, clinic-a/.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from accord.core.errors import AccordError
from accord.data import listing
from accord.data.convert import convert
from accord.data.folders import shortened, subfolders
from accord.data.images import SITE, Labels
from accord.data.raw import Part, Raw, Request, Source, check_classes, check_labels

Find = Callable[[Path], Source | None]
Entry = tuple[str, str, Source]  # site, part, files; the part is "train", "test" or "" for both


def find_site_files(path: Path, *, find: Find, suffix: str) -> Source:
    """The source of a folder with one entry per site."""
    entries = _entries(path, find, suffix)
    sites = {site for site, _, _ in entries}
    if len(sites) < 2:
        raise AccordError(
            f"{path}: expected one {suffix} file per site, two or more; found "
            f"{shortened(sorted(sites)) or 'none'}. Put the files of all sites into this folder."
        )

    def files() -> list[Path]:
        return [file for _, _, source in entries for file in source.files()]

    def read(request: Request) -> Raw:
        _tell_left_out(path, entries, request)
        return joined(
            [(site, part, source.read(request)) for site, part, source in entries], request, path
        )

    return Source(f"{suffix} files of sites", path, files, read, salt="sites")


def _entries(path: Path, find: Find, suffix: str) -> list[Entry]:
    """The files and folders of all sites, sorted by site."""
    found: list[Entry] = []
    for name in sorted(name for name in listing.entries(path) if name.endswith(suffix)):
        file = path / name
        source = find(listing.usable(file)) if file.is_file() else None
        if source is not None:
            found.append((*_named(file, path), source))
    for folder in subfolders(path):
        source = find(folder)
        if source is not None:
            found.append((folder.name, "", source))
    found.sort(key=lambda entry: entry[:2])
    _refuse_twice(found, path)
    return found


def _named(file: Path, path: Path) -> tuple[str, str]:
    """(site, part) of a file name."""
    match = re.fullmatch(r"(?:(.+)-)?(train|test)", file.stem)
    if match is None:
        return file.stem, ""
    if match[1] is None:
        raise AccordError(
            f"{file}: expected one file per site, named after the site; found a file named "
            f"{file.name}. If {path} holds the parts of one dataset, use another partition.scheme "
            "than by-folder; if a site is named so, rename its file."
        )
    return match[1], match[2]


def _refuse_twice(found: list[Entry], path: Path) -> None:
    """Refuses a site with two entries for the same part."""
    whole = {site for site, part, _ in found if not part}
    names = [(site, part) for site, part, _ in found]
    for site, part in names:
        if names.count((site, part)) > 1 or (part and site in whole):
            raise AccordError(
                f"{path}: the images of site {site!r} are in several files or folders. Leave one "
                "of them."
            )


def _tell_left_out(path: Path, entries: list[Entry], request: Request) -> None:
    used = {file for _, _, source in entries for file in source.files()}
    folders = {parent for file in used for parent in file.parents}
    there = (path / name for name in sorted(listing.entries(path)))
    strays = [entry.name for entry in there if entry not in used and entry not in folders]
    if strays:
        request.tell(f"{path}: these are no files of a site and are left out: {shortened(strays)}")


# --- one dataset of all sites ----------------------------------------------------------------


def joined(read: list[tuple[str, str, Raw]], request: Request, path: Path) -> Raw:
    """The images of all sites as one dataset, with the column SITE.

    Class names are matched by name: their union, sorted unless all sites have the same names. If
    no site has class names, labels are matched by number.
    """
    classes = _classes(read, path, request)
    read = _alike(read, request, path)
    train: list[Part] = []
    test: list[Part] = []
    for site, part, raw in read:
        first = _part(raw.train, raw.classes, classes, site, path)
        (test if part == "test" else train).append(first)
        if raw.test is not None:
            if part:
                raise AccordError(
                    f"{path}: the {part} file of site {site!r} holds a test part of its own. Name "
                    f"it {site} without -{part}, or remove that part."
                )
            test.append(_part(raw.test, raw.classes, classes, site, path))
    if not train:
        raise AccordError(f"{path}: expected training images; found only test parts. Add them.")
    return Raw(_together(train), _together(test) if test else None, classes)


def _classes(
    read: list[tuple[str, str, Raw]], path: Path, request: Request
) -> tuple[str, ...] | None:
    """The class names of all sites together; None if no site has names."""
    named = {site: raw.classes for site, _, raw in read}
    for site, classes in named.items():
        check_classes(classes, path / site)
    lists = list(dict.fromkeys(named.values()))
    if len(lists) == 1:
        return lists[0]
    without = [site for site, classes in named.items() if classes is None]
    if without:
        raise AccordError(
            f"{path}: site {without[0]!r} has no class names, but other sites have. Add them to "
            "all sites, or remove them from all sites if their labels mean the same."
        )
    union = tuple(sorted({name for classes in lists for name in classes or ()}))
    request.tell(
        f"{path}: the sites have different class names, which are matched by name: "
        f"{len(union)} classes"
    )
    return union


def _alike(
    read: list[tuple[str, str, Raw]], request: Request, path: Path
) -> list[tuple[str, str, Raw]]:
    """All images with one size and one number of channels."""
    channels = max(part.images.shape[-1] for _, _, raw in read for part in _parts_of(raw))
    done = [(site, name, convert(raw, request.size, channels)[0]) for site, name, raw in read]
    first = done[0]
    for site, _, raw in done:
        height, width = raw.train.images.shape[1:3]
        wanted = first[2].train.images.shape[1:3]
        if (height, width) != wanted:
            raise AccordError(
                f"{path}: expected images of one size; those of site {first[0]!r} are "
                f"{wanted[0]}×{wanted[1]}, those of {site!r} are {height}×{width}. Set "
                "`data.image` to one size for all images."
            )
    return done


def _parts_of(raw: Raw) -> list[Part]:
    return [raw.train] if raw.test is None else [raw.train, raw.test]


def _part(
    part: Part, own: tuple[str, ...] | None, classes: tuple[str, ...] | None, site: str, path: Path
) -> Part:
    """A part with the labels of all sites' classes and the site's name in a column."""
    if SITE in part.columns:
        raise AccordError(
            f"{path}: the files of site {site!r} have a column {SITE!r}, but with by-folder the "
            f"files themselves name the sites. Rename the column, or use partition.scheme "
            "by-column on one file."
        )
    labels = part.labels
    if own is not None and own != classes:
        check_labels(labels, own, path / site)
        numbers: Labels = np.array([(classes or ()).index(name) for name in own], np.int64)
        labels = numbers[labels]
    named = np.full(len(labels), site)
    return replace(part, labels=labels, columns={**part.columns, SITE: named})


def _together(parts: list[Part]) -> Part:
    """The parts of all sites, one after another, with the columns that all of them have."""
    columns = [name for name in parts[0].columns if all(name in part.columns for part in parts)]
    sizes = {part.found for part in parts}
    return Part(
        np.concatenate([part.images for part in parts]),
        np.concatenate([part.labels for part in parts]),
        found=sizes.pop() if len(sizes) == 1 else None,
        columns={name: np.concatenate([part.columns[name] for part in parts]) for name in columns},
    )
