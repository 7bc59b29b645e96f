"""Downloads, from a server on this machine with a table of its own."""

from __future__ import annotations

import hashlib
import io
import stat
import threading
import zipfile
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import imagefiles as make
from accord.core.errors import AccordError
from accord.data.datasets import load
from accord.data.download import DOWNLOADS, Remote, download, unzip


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def server(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """An address, and the folder whose files it serves."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as httpd:
        thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{httpd.server_port}", folder
        httpd.shutdown()
        thread.join()


def silent(_: str) -> None:
    pass


def remote(address: str, path: Path, **changes: str) -> Remote:
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    values = {"name": path.name, "md5": md5, **changes}
    addresses = (f"{address}/gone/{path.name}", f"{address}/{path.name}")
    return Remote(values["name"], values["md5"], addresses, values.get("unpack"))


def table(monkeypatch: pytest.MonkeyPatch, name: str, *remotes: Remote) -> None:
    monkeypatch.setitem(DOWNLOADS, name, remotes)


def left_behind(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_file() or path.name.startswith(".")]


def test_download_then_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, Path]
) -> None:
    address, folder = server
    make.write_idx_pair(folder)
    table(monkeypatch, "mnist", *(remote(address, path) for path in sorted(folder.iterdir())))
    told: list[str] = []
    assert download("mnist", tmp_path / "root", told.append) == tmp_path / "root/mnist"
    assert len(load("mnist", root=tmp_path / "root", tell=silent).train) == 6
    assert len(left_behind(tmp_path / "root")) == 4
    told.clear()
    download("mnist", tmp_path / "root", told.append)
    assert all("already there" in line for line in told)


def test_wrong_checksum_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, Path]
) -> None:
    address, folder = server
    (folder / "a.mat").write_bytes(b"something else")
    table(monkeypatch, "svhn", remote(address, folder / "a.mat", md5="0" * 32))
    with pytest.raises(AccordError, match=r"expected MD5 0000.*Nothing was kept"):
        download("svhn", tmp_path / "root", silent)
    assert left_behind(tmp_path / "root") == []


def test_a_damaged_file_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, Path]
) -> None:
    address, folder = server
    (folder / "a.mat").write_bytes(b"whole")
    make.write_files(tmp_path / "root/svhn", {"a.mat": b"who"})
    table(monkeypatch, "svhn", remote(address, folder / "a.mat"))
    download("svhn", tmp_path / "root", silent)
    assert (tmp_path / "root/svhn/a.mat").read_bytes() == b"whole"


def test_no_network_says_where_to_put_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table(monkeypatch, "svhn", Remote("a.mat", "0" * 32, ("http://127.0.0.1:9/a.mat",)))
    with pytest.raises(AccordError, match=r"Fetch it by hand from http.*a\.mat and put it into"):
        download("svhn", tmp_path, silent)
    assert left_behind(tmp_path) == []


def test_a_root_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(AccordError, match="cannot be written there"):
        download("mnist", tmp_path / "file", silent)


@pytest.mark.parametrize("name", ["digits", "folder", "minst"])
def test_what_cannot_be_downloaded(tmp_path: Path, name: str) -> None:
    with pytest.raises(AccordError, match=f"'{name}' cannot be downloaded"):
        download(name, tmp_path, silent)


def test_the_real_table_is_well_formed() -> None:
    assert set(DOWNLOADS) == {
        "mnist",
        "fashion-mnist",
        "cifar10",
        "cifar100",
        "svhn",
        "tiny-imagenet",
    }
    for remotes in DOWNLOADS.values():
        for item in remotes:
            assert len(item.md5) == 32
            assert all(address.endswith(f"/{item.name}") for address in item.addresses)


# Zip files ---------------------------------------------------------------------------------------


def zipped(*members: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        for name, data in members:
            file.writestr(name, data)
    return buffer.getvalue()


def test_a_zip_file_is_unpacked_and_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: tuple[str, Path]
) -> None:
    address, folder = server
    (folder / "t.zip").write_bytes(zipped(("top/", b""), ("top/a/b.txt", b"hello")))
    table(monkeypatch, "tiny-imagenet", remote(address, folder / "t.zip", unpack="top"))
    download("tiny-imagenet", tmp_path / "root", silent)
    place = tmp_path / "root/tiny-imagenet"
    assert [path.name for path in place.iterdir()] == ["top"]
    assert (place / "top/a/b.txt").read_bytes() == b"hello"
    told: list[str] = []
    download("tiny-imagenet", tmp_path / "root", told.append)
    assert "already there" in told[0]


def link() -> zipfile.ZipInfo:
    info = zipfile.ZipInfo("top/link")
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "member", ["../evil", "/evil", "top/../../evil", "beside/evil", "top\\..\\evil", link()]
)
def test_a_zip_file_that_reaches_outside_is_refused(
    tmp_path: Path, member: str | zipfile.ZipInfo
) -> None:
    archive = tmp_path / "t.zip"
    archive.write_bytes(zipped(("top/fine", b"1"), (member, b"../../evil")))
    into = tmp_path / "into"
    into.mkdir()
    with pytest.raises(AccordError, match="refused"):
        unzip(archive, "top", into)
    assert list(into.iterdir()) == []


def test_a_damaged_zip_file(tmp_path: Path) -> None:
    archive = tmp_path / "t.zip"
    archive.write_bytes(zipped(("top/a", b"1"))[:30])
    with pytest.raises(AccordError, match=r"t.zip is damaged"):
        unzip(archive, "top", tmp_path)
