"""Images and labels that are damaged, huge, inconsistent, or not files at all."""

from __future__ import annotations

import os
import shutil
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from badinputs.case import EITHER, REFUSED, Case
from badinputs.damage import DAMAGES

Prepare = Callable[[Path], object]
PIXELS = np.random.default_rng(0).integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
LABELS = np.arange(40) % 4


def _run(data: str) -> tuple[str, ...]:
    return (
        "run", "study.yaml", "--dry-run", "--workers", "1", "--out", "out", f"data={data}",
        "partition={alpha: 0.5, clients: 2}",
    )  # fmt: skip


NPZ, FOLDER = _run("{name: npz, path: bad.npz}"), _run("{name: folder, path: images}")
PARQUET = _run("{name: parquet, path: bad.parquet}")


def cases() -> Iterator[Case]:
    for name, prepare in _npz().items():
        yield Case("odd npz", name, NPZ, prepare, needs=("study.yaml",))
    for name, prepare in _parquet().items():
        yield Case("odd parquet", name, PARQUET, prepare, needs=("study.yaml",))
    for name, (prepare, codes, says) in _folders().items():
        needs = ("study.yaml", "images")
        yield Case("odd folder", name, FOLDER, prepare, codes=codes, needs=needs, says=says)
    for name, damage in DAMAGES.items():
        inputs = ("study.yaml", "images.npz", "images")
        if name == "gone":
            continue
        yield Case(
            "damaged images",
            f"npz is {name}",
            NPZ,
            _first("images.npz", "bad.npz", damage),
            needs=inputs,
        )
        yield Case(
            "damaged images",
            f"parquet is {name}",
            PARQUET,
            _first("images.npz", "bad.parquet", damage),
            needs=inputs,
        )
        codes = EITHER if name == "a folder" else REFUSED  # a folder may have any name
        yield Case(
            "damaged images",
            f"a picture is {name}",
            FOLDER,
            _picture(damage),
            codes=codes,
            needs=inputs,
        )
        words = ("predict", "model", "one.png")
        yield Case(
            "damaged images",
            f"predict: {name}",
            words,
            _picture(damage, "one.png"),
            needs=("model", "one.png"),
        )


def _first(source: str, target: str, damage: Any) -> Prepare:
    def prepare(folder: Path) -> None:
        shutil.copyfile(folder / source, folder / target)
        damage(folder / target)

    return prepare


def _picture(damage: Any, name: str = "images/0/0.png") -> Prepare:
    return lambda folder: damage(folder / name)


def _npz() -> dict[str, Prepare]:
    def arrays(**parts: Any) -> Prepare:
        return lambda folder: np.savez(folder / "bad.npz", **parts)

    return {
        "no labels": arrays(images=PIXELS),
        "no images": arrays(labels=LABELS),
        "fewer labels": arrays(images=PIXELS, labels=LABELS[:30]),
        "labels below 0": arrays(images=PIXELS, labels=LABELS - 1),
        "labels with a gap of 10⁹": arrays(images=PIXELS, labels=LABELS * 10**9),
        "fractional labels": arrays(images=PIXELS, labels=LABELS + 0.5),
        "NaN labels": arrays(images=PIXELS, labels=np.full(40, np.nan)),
        "labels of two axes": arrays(images=PIXELS, labels=np.stack([LABELS, LABELS])),
        "no image": arrays(images=PIXELS[:0], labels=LABELS[:0]),
        "one image": arrays(images=PIXELS[:1], labels=LABELS[:1]),
        "float images above 1": arrays(images=PIXELS * 1e6, labels=LABELS),
        "NaN images": arrays(images=np.full((40, 8, 8, 1), np.nan), labels=LABELS),
        "complex images": arrays(images=PIXELS * 1j, labels=LABELS),
        "images of no axis": arrays(images=np.uint8(3), labels=LABELS),
        "seven channels": arrays(images=np.repeat(PIXELS, 7, axis=3), labels=LABELS),
        "images of width 0": arrays(images=PIXELS[:, :0], labels=LABELS),
        "texts as images": arrays(images=np.full((40, 8, 8, 1), "a"), labels=LABELS),
        "pickled objects": lambda folder: np.savez(
            folder / "bad.npz", images=np.array([{"a": 1}] * 40, dtype=object), labels=LABELS
        ),
        "1 MB that unpacks to 1 GB": _bomb,
        "a header that claims 89 GB": _lying,
        "an entry outside": _outside,
        "a damaged entry": _damaged_entry,
        "encrypted flag": _encrypted,
    }


def _bomb(folder: Path) -> None:
    shape = (10**9 // 64, 8, 8, 1)
    with zipfile.ZipFile(folder / "bad.npz", "w", zipfile.ZIP_DEFLATED) as file:
        with file.open("images.npy", "w", force_zip64=True) as entry:
            np.lib.format.write_array_header_1_0(
                entry, {"descr": "|u1", "fortran_order": False, "shape": shape}
            )
            for _ in range(100):
                entry.write(bytes(10**7))
        with file.open("labels.npy", "w") as entry:
            np.save(entry, LABELS)


def _lying(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bad.npz", "w") as file:
        with file.open("images.npy", "w") as entry:
            np.lib.format.write_array_header_1_0(
                entry,
                {"descr": "|u1", "fortran_order": False, "shape": (89 * 10**9 // 64, 8, 8, 1)},
            )
            entry.write(bytes(1000))
        with file.open("labels.npy", "w") as entry:
            np.save(entry, LABELS)


def _outside(folder: Path) -> None:
    with zipfile.ZipFile(folder / "bad.npz", "w") as file:
        file.writestr("../../outside.npy", b"x")


def _damaged_entry(folder: Path) -> None:
    np.savez_compressed(folder / "bad.npz", images=PIXELS, labels=LABELS)
    content = bytearray((folder / "bad.npz").read_bytes())
    content[200:260] = bytes(60)
    (folder / "bad.npz").write_bytes(bytes(content))


_ENTRIES = (bytearray(b"PK\x03\x04"), bytearray(b"PK\x01\x02"))


def _encrypted(folder: Path) -> None:
    np.savez(folder / "bad.npz", images=PIXELS, labels=LABELS)
    content = bytearray((folder / "bad.npz").read_bytes())
    for at in range(len(content) - 4):
        if content[at : at + 4] in _ENTRIES:
            content[at + (6 if content[at + 2] == 3 else 8)] |= 1
    (folder / "bad.npz").write_bytes(bytes(content))


def _parquet() -> dict[str, Prepare]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def table(**columns: Any) -> Prepare:
        return lambda folder: pq.write_table(pa.table(columns), folder / "bad.parquet")

    good = [{"bytes": _png(8, 8), "path": "a"}] * 20
    labels = [index % 4 for index in range(20)]
    return {
        "no image column": table(label=labels),
        "no label column": table(image=good),
        "no rows": table(image=pa.array([], pa.binary()), label=pa.array([], pa.int64())),
        "null images": table(image=[None] * 20, label=labels),
        "null labels": table(image=good, label=[None] * 20),
        "text labels of control characters": table(image=good, label=["\x1b[31m"] * 20),
        "images of text": table(image=["a"] * 20, label=labels),
        "images that are no images": table(image=[{"bytes": b"xx", "path": ""}] * 20, label=labels),
        "images of several sizes": table(
            image=[{"bytes": _png(8 + index % 2, 8), "path": ""} for index in range(20)],
            label=labels,
        ),
        "a picture of 900 megapixels": table(
            image=[{"bytes": _png(30_000, 30_000), "path": ""}] * 20, label=labels
        ),
        "labels below 0": table(image=good, label=[-1] * 20),
        "labels of 10⁹": table(image=good, label=[10**9 * (i % 3) for i in range(20)]),
        "list labels": table(image=good, label=[[1]] * 20),
    }


def _png(width: int, height: int) -> bytes:
    """A PNG file of black pixels; the large one is 1 MB of compressed zeros."""

    def chunk(kind: bytes, content: bytes) -> bytes:
        checked = kind + content
        return struct.pack(">I", len(content)) + checked + struct.pack(">I", zlib.crc32(checked))

    pack = zlib.compressobj(9)
    rows = b"".join(pack.compress(bytes(width + 1)) for _ in range(height)) + pack.flush()
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def _folders() -> dict[str, tuple[Prepare, frozenset[int], str]]:
    """Name → how to make it, the exit codes, and what must be said."""

    def huge(folder: Path) -> None:
        (folder / "images/0/0.png").write_bytes(_png(30_000, 30_000))

    def fifo(folder: Path) -> None:
        os.mkfifo(folder / "images/0/pipe.png")

    def not_utf8(folder: Path) -> None:
        source = folder / "images/0/0.png"
        shutil.copyfile(source, os.fsencode(str(folder)) + b"/images/0/caf\xe9.png")

    def class_not_utf8(folder: Path) -> None:
        shutil.copytree(
            folder / "images/0", os.fsencode(str(folder)).decode() + "/images/caf\udce9"
        )

    def escape(folder: Path) -> None:
        shutil.copytree(folder / "images/0", folder / "images/\x1b[31mred\x07")

    def bidi(folder: Path) -> None:
        shutil.copytree(folder / "images/0", folder / "images/\u202egnp")

    def loop(folder: Path) -> None:
        (folder / "images/0/again").symlink_to(folder / "images")

    def dangling(folder: Path) -> None:
        (folder / "images/0/none.png").symlink_to("nowhere.png")

    def empty_class(folder: Path) -> None:
        (folder / "images/empty").mkdir()

    def text(folder: Path) -> None:
        (folder / "images/0/readme.txt").write_text("hello")

    def nothing_there(folder: Path) -> None:
        shutil.rmtree(folder / "images")
        (folder / "images").mkdir()

    def one_class(folder: Path) -> None:
        for label in range(1, 10):
            shutil.rmtree(folder / f"images/{label}")

    def larger(folder: Path) -> None:
        (folder / "images/0/0.png").write_bytes(_png(9, 8))

    def newline(folder: Path) -> None:
        shutil.copytree(folder / "images/0", folder / "images/a\nb")

    return {
        "a picture of 900 megapixels": (huge, REFUSED, "pixel"),
        "a FIFO among the pictures": (fifo, EITHER, "pipe.png"),
        "a picture whose name is no UTF-8": (not_utf8, EITHER, ""),
        "a class whose name is no UTF-8": (class_not_utf8, EITHER, ""),
        "a class with an escape sequence": (escape, EITHER, ""),
        "a class that is written backwards": (bidi, EITHER, ""),
        "a class with a line break": (newline, EITHER, ""),
        "a folder that contains itself": (loop, EITHER, ""),
        "a link to nothing": (dangling, EITHER, "none.png"),
        "a class without pictures": (empty_class, EITHER, "empty"),
        "a text among the pictures": (text, EITHER, ""),
        "no pictures": (nothing_there, REFUSED, "images"),
        "one class": (one_class, REFUSED, "class"),
        "pictures of two sizes": (larger, REFUSED, "size"),
    }
