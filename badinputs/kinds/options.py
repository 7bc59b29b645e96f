"""Targets of commands that write: odd paths, and what belongs to somebody else."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from badinputs.case import EITHER, Case, nothing

RUN = ("run", "study.yaml", "--workers", "1", "--quiet", "--out")
SAVE = ("fuse", "run", "--fusion", "outputs", "--workers", "1", "--quiet", "--save")
EXPORT = ("export", "model", "--onnx")
REPORT, TABLE = ("report", "run", "--out"), ("report", "run", "--markdown", "--out")
BRIEF = ("brief", "study.yaml", "--quiet", "--out")
ANSWER = ("answer", "briefing.safetensors", "images", "--name", "a", "--quiet", "--out")
ADVISE = ("advise", "study.yaml", "--no-cost", "--out")
WRITERS = (RUN, SAVE, EXPORT, REPORT, TABLE, BRIEF, ANSWER, ADVISE)
NEEDS = ("study.yaml", "run", "model", "briefing.safetensors", "images", "one.png")
OUTSIDE = ("", "/proc/x", "/dev/null/x", "x" * 300, "a\nb/\0", "study.yaml/x")


def cases() -> Iterator[Case]:
    for words in WRITERS:
        for target in OUTSIDE:
            yield _case("odd target", repr(target[:20]), (*words, target))
        for name, make in TARGETS.items():
            yield _case("somebody else's", name, (*words, "target"), make, keeps=("target",))
        # The inputs of the command itself.
        for name in ("study.yaml", "run/study.yaml", "model/model.json", "briefing.safetensors"):
            yield _case("an input as the target", name, (*words, name), keeps=(name,))
    yield Case(
        "somebody else's", "m.partial", (*SAVE, "m"), _partial, EITHER, "", NEEDS, ("m.partial",)
    )


def _case(
    kind: str,
    name: str,
    words: tuple[str, ...],
    make: Callable[[Path], object] = nothing,
    keeps: tuple[str, ...] = (),
) -> Case:
    return Case(kind, name, words, make, needs=NEEDS, keeps=keeps)


def _partial(folder: Path) -> None:
    (folder / "m.partial").write_text("mine")


def _file(folder: Path) -> None:
    (folder / "target").write_text("a letter of mine")


def _folder(folder: Path) -> None:
    (folder / "target").mkdir()
    (folder / "target/letter.txt").write_text("mine")


def _fifo(folder: Path) -> None:
    os.mkfifo(folder / "target")


def _socket(folder: Path) -> None:
    here = Path.cwd()
    os.chdir(folder)  # the path of a socket has at most 107 bytes
    try:
        socket.socket(socket.AF_UNIX).bind("target")
    finally:
        os.chdir(here)


def _link(folder: Path) -> None:
    (folder / "theirs").write_text("theirs")
    (folder / "target").symlink_to("theirs")


def _dangling(folder: Path) -> None:
    (folder / "target").symlink_to("nowhere/at/all")


def _device(folder: Path) -> None:
    """A device of this folder: a command that replaces it harms nobody."""
    try:
        os.mknod(folder / "target", stat.S_IFCHR | 0o600, os.makedev(1, 7))
    except PermissionError:  # only root may make one
        _fifo(folder)


TARGETS = {
    "a device": _device,
    "a file": _file,
    "a folder": _folder,
    "a FIFO": _fifo,
    "a socket": _socket,
    "a link to a file": _link,
    "a link to nothing": _dangling,
}
