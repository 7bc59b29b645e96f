"""Download of official files, only on request. Each file must have its known checksum."""

from __future__ import annotations

import hashlib
import itertools
import stat
import tempfile
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from accord.core.errors import AccordError, nearest
from accord.data.raw import Tell


@dataclass(frozen=True)
class Remote:
    """A file, its MD5 as published by its authors or torchvision, and addresses to try in order.

    `unpack` is the folder inside a zip file that replaces the file.
    """

    name: str
    md5: str
    addresses: tuple[str, ...]
    unpack: str | None = None


def _remote(name: str, md5: str, *folders: str, unpack: str | None = None) -> Remote:
    return Remote(name, md5, tuple(f"{folder}/{name}" for folder in folders), unpack)


_MNIST = ("https://ossci-datasets.s3.amazonaws.com/mnist", "http://yann.lecun.com/exdb/mnist")
_FASHION = ("http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",)
_CIFAR = "https://www.cs.toronto.edu/~kriz"
_SVHN = "http://ufldl.stanford.edu/housenumbers"
_TINY = "http://cs231n.stanford.edu"

DOWNLOADS: dict[str, tuple[Remote, ...]] = {
    "mnist": (
        _remote("train-images-idx3-ubyte.gz", "f68b3c2dcbeaaa9fbdd348bbdeb94873", *_MNIST),
        _remote("train-labels-idx1-ubyte.gz", "d53e105ee54ea40749a09fcbcd1e9432", *_MNIST),
        _remote("t10k-images-idx3-ubyte.gz", "9fb629c4189551a2d022fa330f9573f3", *_MNIST),
        _remote("t10k-labels-idx1-ubyte.gz", "ec29112dd5afa0611ce80d1b7f02629c", *_MNIST),
    ),
    "fashion-mnist": (
        _remote("train-images-idx3-ubyte.gz", "8d4fb7e6c68d591d4c3dfef9ec88bf0d", *_FASHION),
        _remote("train-labels-idx1-ubyte.gz", "25c81989df183df01b3e8a0aad5dffbe", *_FASHION),
        _remote("t10k-images-idx3-ubyte.gz", "bef4ecab320f06d8554ea6380940ec79", *_FASHION),
        _remote("t10k-labels-idx1-ubyte.gz", "bb300cfdad3c16e7a12a480ee83cd310", *_FASHION),
    ),
    "cifar10": (_remote("cifar-10-python.tar.gz", "c58f30108f718f92721af3b95e74349a", _CIFAR),),
    "cifar100": (_remote("cifar-100-python.tar.gz", "eb9058c3a382ffc7106e4002c42a8d85", _CIFAR),),
    "svhn": (
        _remote("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373", _SVHN),
        _remote("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3", _SVHN),
    ),
    "tiny-imagenet": (
        _remote(
            "tiny-imagenet-200.zip",
            "90528d7ca1a48142e341f4ef8d21d0de",
            _TINY,
            unpack="tiny-imagenet-200",
        ),
    ),
}


def download(name: str, root: Path, tell: Tell) -> Path:
    """Downloads missing files of `name` into `root`/`name` and returns that folder."""
    if name not in DOWNLOADS:
        raise AccordError(
            f"{name!r} cannot be downloaded{nearest(name, DOWNLOADS) or '.'} "
            f"These can be downloaded: {', '.join(sorted(DOWNLOADS))}."
        )
    folder = root.expanduser() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for remote in DOWNLOADS[name]:
            _ensure(remote, folder, tell)
    except OSError as error:
        raise AccordError(f"{folder}: the files cannot be written there ({error}).") from error
    return folder


def _ensure(remote: Remote, folder: Path, tell: Tell) -> None:
    target = folder / (remote.unpack or remote.name)
    if target.exists() and (remote.unpack or _md5(target) == remote.md5):
        tell(f"{target} is already there")
        return
    # The temporary folder is in the same place, so that the last step is a rename and no
    # incomplete file remains.
    with tempfile.TemporaryDirectory(prefix=".download-", dir=folder) as temporary:
        fetched = Path(temporary) / remote.name
        _fetch(remote, fetched, folder, tell)
        if _md5(fetched) != remote.md5:
            raise AccordError(
                f"{remote.name}: expected MD5 {remote.md5}; the downloaded file has "
                f"{_md5(fetched)}. Nothing was kept; try again later or fetch it by hand from "
                f"{remote.addresses[0]} into {folder}."
            )
        if remote.unpack:
            tell(f"unpacking {remote.name}")
            fetched = unzip(fetched, remote.unpack, Path(temporary))
        if target.exists():
            kept = _free_name(target)
            target.rename(kept)
            tell(f"{target} was another file; it is kept as {kept}")
        fetched.replace(target)


def _free_name(path: Path) -> Path:
    """A name for a file that has to give way: a file of the user is never deleted."""
    names = (path.with_name(f"{path.name}.old-{number}") for number in itertools.count(1))
    return next(name for name in names if not name.exists())


def _fetch(remote: Remote, to: Path, folder: Path, tell: Tell) -> None:
    """Downloads the file from the first address that answers."""
    from http.client import HTTPException  # slow to import and rarely needed

    problems = []
    for address in remote.addresses:
        try:
            _stream(address, to, tell)
            return
        # URLError and a broken connection are OSErrors; an incomplete answer is an HTTPException.
        except (OSError, HTTPException) as error:
            problems.append(f"{address}: {error}")
    raise AccordError(
        f"{remote.name} could not be downloaded ({'; '.join(problems)}). Fetch it by hand from "
        f"{remote.addresses[0]} and put it into {folder}"
        + (f", unpacked to {remote.unpack}/." if remote.unpack else ".")
    )


def _stream(address: str, to: Path, tell: Tell) -> None:
    from urllib.request import urlopen

    tell(f"downloading {address}")
    with urlopen(address, timeout=30) as answer, to.open("wb") as file:
        total = int(answer.headers.get("Content-Length") or 0)
        done, last = 0, time.monotonic()
        while block := answer.read(1 << 18):
            file.write(block)
            done += len(block)
            if total and time.monotonic() - last >= 2:
                last = time.monotonic()
                tell(f"{to.name} … {100 * done // total} %")


def unzip(archive: Path, top: str, into: Path) -> Path:
    """Unpacks a zip file whose members all lie in the folder `top`, and returns that folder.

    Before a file is written, it refuses absolute names, "..", links and members outside `top`.
    """
    try:
        with zipfile.ZipFile(archive) as file:
            for member in file.infolist():
                _check_member(member, top, archive)
            file.extractall(into)
    except (zipfile.BadZipFile, EOFError) as error:
        raise AccordError(f"{archive.name} is damaged ({error}); download it again.") from None
    return into / top


def _check_member(member: zipfile.ZipInfo, top: str, archive: Path) -> None:
    path = PurePosixPath(member.filename)
    link = stat.S_ISLNK(member.external_attr >> 16)
    outside = path.is_absolute() or ".." in path.parts or path.parts[:1] != (top,)
    if link or outside or "\\" in member.filename:
        raise AccordError(
            f"{archive.name} is refused, because its member {member.filename!r} lies outside "
            f"{top}/ or is a link. Download the archive from its authors."
        )


def _md5(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.md5(usedforsecurity=False)).hexdigest()
