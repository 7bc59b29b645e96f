"""Nothing that Accord did not write is replaced or deleted, and folders change in one step."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accord.core import replacing
from accord.core.errors import AccordError
from accord.core.files import append_text, locked, write_atomic
from accord.core.partials import is_partial, new_name, partial_file, partial_folder, sweep
from accord.core.replacing import aside, recover, replace_folder
from accord.core.targets import refuse_file, refuse_folder


def no_plain_files(folder: Path) -> Iterator[Path]:
    """A link, a dangling link, a pipe, a socket and a folder."""
    (folder / "mine.txt").write_text("mine")
    (folder / "link").symlink_to(folder / "mine.txt")
    (folder / "dangling").symlink_to(folder / "nothing")
    os.mkfifo(folder / "pipe")
    with socket.socket(socket.AF_UNIX) as made:
        made.bind(str(folder / "socket"))
    (folder / "folder").mkdir()
    yield from (folder / name for name in ("link", "dangling", "pipe", "socket", "folder"))
    yield Path("/dev/null")


def test_what_is_no_plain_file_is_no_target(tmp_path: Path) -> None:
    for path in no_plain_files(tmp_path):
        with pytest.raises(AccordError, match="expected a file that Accord can write"):
            write_atomic(path, b"x")
        with pytest.raises(AccordError, match="expected a file that Accord can write"):
            append_text(path, "x")
        with pytest.raises(AccordError, match=r"is a folder|expected a new file"):
            refuse_file(path, "--out", "is strange", lambda _: True)
        if path.name != "folder":
            with pytest.raises(AccordError, match="Choose another folder"):
                refuse_folder(path, "--save", "model", lambda _: None)
    assert (tmp_path / "mine.txt").read_text() == "mine"
    assert not (tmp_path / "nothing").exists()
    assert not any(is_partial(path.name) for path in tmp_path.iterdir())


def test_a_file_of_the_user_and_a_missing_folder_are_refused(tmp_path: Path) -> None:
    mine = tmp_path / "mine.txt"
    mine.write_text("mine")
    with pytest.raises(AccordError, match=r"mine.txt exists and is no page"):
        refuse_file(mine, "-o", "is no page", lambda path: b"page" in path.read_bytes())
    refuse_file(mine, "-o", "is no page", lambda _: True)
    for path in (tmp_path / "no" / "page", mine / "page"):
        with pytest.raises(AccordError, match="in a folder that exists"):
            refuse_file(path, "-o", "", lambda _: True)
    with pytest.raises(AccordError, match=r"mine.txt is a file"):
        refuse_folder(mine / "model", "--save", "model", lambda _: None)
    with pytest.raises(AccordError, match="File name too long"):
        refuse_file(tmp_path / ("x" * 300), "-o", "", lambda _: True)
    write_atomic(tmp_path / ("x" * 255), b"as long as a name can be")


def test_the_current_folder_and_a_record_are_no_targets(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "run" / "trials" / "t").mkdir(parents=True)
    (tmp_path / "run" / "study.yaml").touch()
    for name in ("sites.csv", "trials/t/new.html", "trials/new.html", "logs/x"):
        with pytest.raises(AccordError, match="among the files of the record"):
            refuse_file(tmp_path / "run" / name, "-o", "", lambda _: True)
        with pytest.raises(AccordError, match="among the files of the record"):
            refuse_folder(tmp_path / "run" / name, "--save", "model", lambda _: None)
    refuse_file(tmp_path / "run" / "report.html", "-o", "", lambda _: True)
    monkeypatch.chdir(tmp_path / "run")
    for name in (".", "..", "trials/.."):
        with pytest.raises(AccordError, match="current folder"):
            refuse_folder(Path(name), "--save", "model", lambda _: None)


def test_only_what_a_killed_process_left_is_swept(tmp_path: Path) -> None:
    token = new_name()
    theirs = [".accord-0123456789abcdef-0123456789abcdef.partial", "m.partial", ".x.partial"]
    for name in theirs:
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("mine")
    if os.fork() == 0:  # a process that dies while it writes a file and a folder
        with partial_file(tmp_path) as (descriptor, _), partial_folder(tmp_path) as folder:
            os.write(descriptor, b"half")
            (folder / "net-0").write_bytes(b"half")
            os.kill(os.getpid(), signal.SIGKILL)
    os.wait()
    assert sum(is_partial(path.name) for path in tmp_path.iterdir()) == 2
    (tmp_path / token).symlink_to(tmp_path / "m.partial")  # a link is not followed
    with partial_file(tmp_path) as (_, living), partial_folder(tmp_path) as at_work:
        sweep(tmp_path)
        left = {path.name for path in tmp_path.iterdir()}
        assert left == {*theirs, token, living.name, at_work.name}
    assert {path.name for path in tmp_path.iterdir()} == {*theirs, token}
    assert (tmp_path / "m.partial" / "thesis.txt").exists()


def made(folder: Path, content: str) -> Path:
    folder.mkdir()
    (folder / "model.json").write_text(content)
    return folder


def test_a_kill_at_any_step_leaves_the_old_or_the_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both ways of replacing; the process is killed before its first, second, … step."""
    for can_exchange in (True, False):
        results = []
        for step in range(9):
            place = tmp_path / f"{can_exchange}-{step}"
            place.mkdir()
            made(place / "model", "old")
            if os.fork() == 0:
                if not can_exchange:
                    monkeypatch.setattr(replacing, "exchange", lambda *_: False)
                _die_before(step, monkeypatch)
                with partial_folder(place) as new:
                    (new / "model.json").write_text("new")
                    replace_folder(new, place / "model")
                os._exit(0)
            _, status = os.wait()
            recover(place / "model")
            sweep(place)
            assert [path.name for path in place.iterdir()] == ["model"]
            found = (place / "model" / "model.json").read_text()
            results.append(found)
            if status == 0:
                break
        assert results[0] == "old"
        assert results[-1] == "new"
        assert set(results) == {"old", "new"}


def _die_before(step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kills this process before its change number `step` of a name."""
    left = [step]

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*words: Any, **options: Any) -> Any:
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            left[0] -= 1
            return function(*words, **options)

        return call

    monkeypatch.setattr(replacing, "exchange", counted(replacing.exchange))
    monkeypatch.setattr(Path, "rename", counted(Path.rename))
    monkeypatch.setattr(shutil, "rmtree", counted(shutil.rmtree))


def test_a_recovered_name_is_computed_from_the_folder_alone(tmp_path: Path) -> None:
    made(aside(tmp_path / "a"), "of a")
    recover(tmp_path / "b")
    recover(tmp_path / "a")
    assert [path.name for path in tmp_path.iterdir()] == ["a"]


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "page.html"
    write_atomic(path, b"old")
    for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO):

        def fail(_: int, number: int = number) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(OSError, match=os.strerror(number)) as raised:
            write_atomic(path, b"new")
        assert raised.value.filename == str(path)
        assert path.read_bytes() == b"old"
        assert [one.name for one in tmp_path.iterdir()] == ["page.html"]


def test_a_lock_does_not_empty_a_file_of_the_user(tmp_path: Path) -> None:
    (tmp_path / ".lock").write_text("notes")
    with pytest.raises(AccordError, match="no lock of Accord"), locked(tmp_path, "busy"):
        pass
    assert (tmp_path / ".lock").read_text() == "notes"
