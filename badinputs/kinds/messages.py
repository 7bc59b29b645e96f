"""Briefings, uploads and saved models that are damaged, changed, or that lie about their size."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from badinputs.case import EITHER, Case
from badinputs.damage import DAMAGES

ANSWER = (
    "answer", "briefing.safetensors", "images", "--name", "a", "--out", "up.safetensors", "--quiet",
    "--keep", "kept",
)  # fmt: skip
FUSE = ("fuse", "briefing.safetensors", "upload.safetensors", "--save", "fused", "--quiet")
PREDICT, EXPORT = ("predict", "model", "one.png"), ("export", "model", "--onnx", "m.onnx")
FILES = ("briefing.safetensors", "upload.safetensors")
NEEDS = (*FILES, "images", "model", "one.png")


def cases() -> Iterator[Case]:
    for name, damage in (*DAMAGES.items(), *HEADERS.items()):
        for file, words in zip(FILES, (ANSWER, FUSE), strict=True):
            yield _case("damaged message", f"{file} is {name}", words, file, damage)
            yield _case("damaged message", f"{file} is {name}", ("show", file), file, damage)
        for at, file in enumerate(("model.json", "net-0.safetensors", "combiner.safetensors")):
            words = (PREDICT, EXPORT)[at % 2]
            yield _case("damaged model", f"{file} is {name}", words, f"model/{file}", damage)
    for name, change in CHANGES.items():
        for words in (PREDICT, EXPORT):
            yield _case("changed model", name, words, "model/model.json", change)
    for name, change in BRIEFINGS.items():
        for words in (ANSWER, FUSE):
            yield _case("changed briefing", name, words, FILES[0], change)
    for name, change in UPLOADS.items():
        yield _case("changed upload", name, FUSE, FILES[1], change)
    yield from _words()


def _case(kind: str, name: str, words: tuple[str, ...], file: str, damage: Any) -> Case:
    return Case(kind, name, words, lambda folder: damage(folder / file), needs=NEEDS)


def _words() -> Iterator[Case]:
    for name in ("", "../up", "a/b", "\x1b[31mred", "a\nb", "x" * 5000, ".", "\u202egnp", "a\0b"):
        words = tuple(name if word == "a" else word for word in ANSWER)
        yield Case("odd client", repr(name[:20]), words, codes=EITHER, needs=NEEDS)
    twice = (*FUSE[:3], "upload.safetensors", *FUSE[3:])
    yield Case("odd exchange", "the same upload twice", twice, needs=NEEDS)
    yield Case("odd exchange", "a briefing as an upload", ("fuse", FILES[0], FILES[0]), needs=NEEDS)
    yield Case("odd exchange", "an upload as a briefing", ("fuse", FILES[1], FILES[1]), needs=NEEDS)
    yield Case("odd exchange", "no upload", ("fuse", FILES[0]), needs=NEEDS)

    def copied(folder: Path) -> None:
        (folder / "b.safetensors").write_bytes((folder / FILES[1]).read_bytes())

    words = (*FUSE[:3], "b.safetensors", *FUSE[3:])
    yield Case("odd exchange", "a copy of an upload", words, copied, needs=NEEDS)

    def renamed(folder: Path) -> None:
        copied(folder)
        header(lambda about: about["header"].update(client="other"))(folder / "b.safetensors")

    yield Case("odd exchange", "a copy under another name", words, renamed, needs=NEEDS)


def parts(path: Path) -> tuple[dict[str, Any], bytes]:
    """The header of a safetensors file, and the bytes of its tensors."""
    content = path.read_bytes()
    length = int.from_bytes(content[:8], "little")
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def write(path: Path, head: dict[str, Any], data: bytes) -> None:
    text = json.dumps(head).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)


def header(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    """Changes Accord's own part of the header; the result is a whole safetensors file."""

    def apply(path: Path) -> None:
        head, data = parts(path)
        about = json.loads(head["__metadata__"]["accord"])
        change(about)
        head["__metadata__"]["accord"] = json.dumps(about)
        write(path, head, data)

    return apply


def tensors(change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        head, data = parts(path)
        change(head)
        write(path, head, data)

    return apply


def _of_safetensors(change: Callable[[Path], None]) -> Callable[[Path], None]:
    """A change of the header of a safetensors file; another file becomes random bytes."""

    def apply(path: Path) -> None:
        if path.suffix == ".safetensors":
            change(path)
        else:
            path.write_bytes(b"\x89" * 300)

    return apply


def _first_tensor(head: dict[str, Any]) -> dict[str, Any]:
    return next(value for key, value in sorted(head.items()) if key != "__metadata__")


HEADERS: dict[str, Callable[[Path], None]] = {
    name: _of_safetensors(change)
    for name, change in {
        "a length of 10¹⁸": lambda path: path.write_bytes(
            (10**18).to_bytes(8, "little") + path.read_bytes()[8:]
        ),
        "offsets beyond its end": tensors(
            lambda head: _first_tensor(head).update(data_offsets=[0, 10**12])
        ),
        "a shape of 89 GB": tensors(lambda head: _first_tensor(head).update(shape=[89 * 10**9])),
        "a negative shape": tensors(lambda head: _first_tensor(head).update(shape=[-1])),
        "an unknown type": tensors(lambda head: _first_tensor(head).update(dtype="F7")),
        "a tensor too few": tensors(lambda head: head.pop(sorted(head)[-1])),
    }.items()
}


def _model(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        content = json.loads(path.read_text())
        change(content)
        path.write_text(json.dumps(content))

    return apply


CHANGES: dict[str, Callable[[Path], None]] = {
    "10⁹ pixels": _model(lambda c: c.update(image=10**9)),
    "image_size 10⁹": _model(lambda c: c.update(image_size=10**9)),
    "another mean": _model(lambda c: c.update(mean=[0.9] * len(c["mean"]))),
    "NaN mean": _model(lambda c: c.update(mean=[float("nan")] * len(c["mean"]))),
    "std 0": _model(lambda c: c.update(std=[0.0] * len(c["std"]))),
    "std negative": _model(lambda c: c.update(std=[-1.0] * len(c["std"]))),
    "classes turned round": _model(lambda c: c.update(classes=c["classes"][::-1])),
    "a class fewer": _model(lambda c: c.update(classes=c["classes"][:-1])),
    "a class with an escape sequence": _model(
        lambda c: c.update(classes=["\x1b[31mred", *c["classes"][1:]])
    ),
    "nets outside": _model(lambda c: c.update(nets=["../../etc/passwd"])),
    "100,000 nets": _model(lambda c: c.update(clients=[str(i) for i in range(100_000)])),
    "another combiner": _model(lambda c: c.update(combiner="nothing")),
    "another format": _model(lambda c: c.update(format=99)),
    "another backbone": _model(lambda c: c.update(net={"backbone": "resnet50"})),
}


def _set(*path: str, value: Any) -> Callable[[Path], None]:
    def change(about: dict[str, Any]) -> None:
        place = about["header"]
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value

    return header(change)


BRIEFINGS: dict[str, Callable[[Path], None]] = {
    "10¹² epochs": _set("budget", "epochs", value=10**12),
    "a batch of 10¹²": _set("budget", "batch", value=10**12),
    "true epochs": _set("budget", "epochs", value=True),
    "a negative learning rate": _set("budget", "lr", value=-1.0),
    "images of 10⁹ pixels": _set("image_size", value=10**9),
    "another mean": _set("mean", value=[0.9]),
    "std 0": _set("std", value=[0.0]),
    "no classes": _set("classes", value=[]),
    "a class twice": _set("classes", value=["0"] * 10),
    "a class with an escape sequence": _set("classes", value=["\x1b[31m", *"123456789"]),
    "another net": _set("net", value={"backbone": "resnet50"}),
    "an unknown key": _set("surprise", value=1),
    "a seed of text": _set("seed", value="zero"),
    "an image augmentation of code": _set("augment", value="__import__('os')"),
}
UPLOADS: dict[str, Callable[[Path], None]] = {
    "0 samples": _set("samples", value=0),
    "10¹⁵ samples": _set("samples", value=10**15),
    "true samples": _set("samples", value=True),
    "fewer samples": _set("samples", value=7),
    "an accuracy of 2": _set("train_accuracy", value=2.0),
    "a client with an escape sequence": _set("client", value="\x1b[31mred"),
    "a client of a path": _set("client", value="../../x"),
    "an empty client": _set("client", value=""),
    "a client of 10⁶ letters": _set("client", value="x" * 10**6),
    "an epoch of 99": _set("epoch", value=99),
    "a negative epoch": _set("epoch", value=-1),
    "telemetry of text": _set("telemetry", value=[{"epoch": "one", "seconds": "long"}]),
    "telemetry of 10⁵ entries": _set("telemetry", value=[{"epoch": 1, "seconds": 1.0}] * 10**5),
    "another briefing": _set("briefing", value="0" * 64),
}
