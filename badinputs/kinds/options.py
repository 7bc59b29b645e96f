"""Options and paths: what does not exist, what belongs to somebody else, and full disks."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

from badinputs.case import EITHER, Case

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
            if (words, name) in ALLOWED:
                continue
            yield _case("somebody else's", name, (*words, "target"), make, keeps=("target",))
        # The inputs of the command itself.
        for name in ("study.yaml", "run/study.yaml", "model/model.json", "briefing.safetensors"):
            yield _case("an input as the target", name, (*words, name), keeps=(name,))
    for words in ODD:
        yield _case("odd options", "", words)
    partial = lambda folder: (folder / "m.partial").write_text("mine")  # noqa: E731
    words = (*SAVE, "m")
    yield Case("somebody else's", "m.partial", words, partial, frozenset({0, 2}), "", NEEDS, ("m.partial",))


def _case(
    kind: str,
    name: str,
    words: tuple[str, ...],
    make: Callable[[Path], object] = lambda folder: None,  # noqa: ARG005
    keeps: tuple[str, ...] = (),
) -> Case:
    return Case(kind, name, words, make, needs=NEEDS, keeps=keeps)


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
ALLOWED: set[tuple[tuple[str, ...], str]] = set()
ODD = (
    ("run",), ("run", "a", "b"), ("nothing",), ("--nothing",), ("run", "study.yaml", "--workers", "0"),
    ("run", "study.yaml", "--workers", "-1"), ("run", "study.yaml", "--workers", "many"),
    ("run", "study.yaml", "--workers", "100000"), ("run", "study.yaml", "--workers", "9" * 5000),
    ("run", "study.yaml", "--data-root", "/nowhere", "data.name=cifar10"),
    ("run", "study.yaml", "--cluster", "nowhere"), ("run", "study.yaml", "--cluster", "tcp://127.0.0.1:1"),
    ("results", "nowhere"), ("results", "study.yaml"), ("results", "images"), ("results", "/"),
    ("results", "/dev/zero"), ("results", ""), ("results", "\x1b[31mred"), ("results", "caf\udce9"),
    ("dials", "run", "nothing"), ("dials", "run", "--trial", "nothing"), ("dials", "run", ""),
    ("compare", "run", "--baseline", "nothing"), ("compare", "run", "--baseline", ":"),
    ("compare", "run", "--baseline", ""), ("compare", "run", "--baseline", "fafi@nowhere"),
    ("compare", "run", "--baseline", "fafi", "--threshold", "nan"),
    ("compare", "run", "--baseline", "fafi", "--threshold", "inf"),
    ("compare", "run", "--baseline", "fafi", "--threshold", "101"),
    ("compare", "run", "--baseline", "fafi", "--threshold", "-1"),
    ("report", "nowhere"), ("report", "run", "--markdown", "--latex"), ("report", "run", "--trial", "x"),
    ("report", "run", "--baseline", "nothing"), ("diagnose", "nowhere"), ("diagnose", "run", "--trial", "x"),
    ("watch", "nowhere", "--once"), ("watch", "run", "--every", "0"), ("watch", "run", "--every", "nan"),
    ("watch", "run", "--every", "-1"), ("fuse", "nowhere", "--fusion", "average"), ("fuse", "run"),
    ("fuse", "run", "--fusion", "nothing"), ("fuse", "run", "--fusion", ""),
    ("fuse", "run", "--fusion", "{use: average, weights: heavy}"), ("fuse", "run", "--fusion", "[1]"),
    ("fuse", "run", "--fusion", "{"), ("fuse", "run", "--fusion", "&a [*a]"),
    ("fuse", "run", "--fusion", "ridge"), ("fuse", "run", "--fusion", "average", "--without", "nobody"),
    ("fuse", "run", "--fusion", "average", "--without", "0", "--without", "1", "--without", "2"),
    ("fuse", "run", "--fusion", "average", "--trial", "nothing"),
    ("fuse", "run", "--fusion", "average", "--add", "nowhere"),
    ("fuse", "run", "--fusion", "average", "--add", "study.yaml"),
    ("fuse", "run", "--fusion", "average", "--remove", "nobody"),
    ("fuse", "run", "--fusion", "average", "--clients", "0"),
    ("fuse", "run", "--fusion", "average", "--test", "images"),
    ("fuse", "run", "--fusion", "average", "--next", "n.safetensors"),
    ("predict", "nowhere", "one.png"), ("predict", "model", "nowhere.png"), ("predict", "model", "study.yaml"),
    ("predict", "model", "/dev/zero"), ("predict", "run", "one.png"), ("predict", "one.png", "model"),
    ("predict", "model", ""), ("predict", "", "one.png"), ("export", "nowhere", "--onnx", "x.onnx"),
    ("export", "model"), ("export", "run", "--onnx", "x.onnx"), ("show", "nowhere"), ("show", "study.yaml"),
    ("show", "run"), ("show", "/dev/zero"), ("brief", "nowhere", "--out", "b"), ("brief", "study.yaml"),
    ("brief", "study.yaml", "--out", "b", "--from", "run"), ("brief", "study.yaml", "--out", "b", "--from", "x"),
    ("brief", "study.yaml", "seeds=[0,1]", "--out", "b"), ("answer", "nowhere", "images", "--name", "a", "--out", "u"),
    ("answer", "briefing.safetensors", "nowhere", "--name", "a", "--out", "u"),
    ("answer", "briefing.safetensors", "one.png", "--name", "a", "--out", "u"),
    ("answer", "briefing.safetensors", "images", "--name", "a", "--out", "u", "--device", "tpu"),
    ("answer", "briefing.safetensors", "images", "--name", "a", "--out", "u", "--device", "cuda:99"),
    ("advise",), ("advise", "nowhere"), ("advise", "--data", "nowhere"), ("advise", "--data", "/dev/zero"),
    ("advise", "study.yaml", "--exchanges", "0"), ("advise", "study.yaml", "--megabytes", "-1"),
    ("advise", "study.yaml", "--megabytes", "nan"), ("advise", "study.yaml", "--public", "2"),
    ("advise", "study.yaml", "--public", "nan"), ("advise", "--data", "images", "--clients", "0"),
    ("advise", "--data", "images", "--clients", "1000000000"), ("advise", "--data", "images", "--image", "-1"),
    ("advise", "--data", "images", "--column", "nothing"), ("advise", "--data", "images", "--image", "1000000"),
    ("teacher", "nowhere", "--save", "t"), ("teacher", "study.yaml"), ("teacher", "study.yaml", "--save", "t", "--epochs", "0"),
    ("teacher", "study.yaml", "--save", "t", "--backbone", "nothing"), ("teacher", "study.yaml", "--save", "t", "--seed", "-1"),
    ("teacher", "study.yaml", "--save", "t", "--on", "everything"), ("recipes", "nothing"), ("recipes", "../x"),
    ("recipes", "\x1b[31m"), ("data", "--download", "nothing"), ("flower", "nothing"), ("flower", "local", "nowhere"),
    ("flower", "app", "nowhere"), ("flower", "keys"),
)  # fmt: skip
assert EITHER
