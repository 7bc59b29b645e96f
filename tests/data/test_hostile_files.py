"""Damaged and hostile files of images: each is refused with a sentence, before much is unpacked."""

from __future__ import annotations

import contextlib
import gzip
import io
import os
import random
import zipfile
import zlib
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from accord.core.errors import AccordError
from accord.data import datasets
from accord.data.decode import MOST_PIXELS, decode
from accord.data.formats import read_idx
from accord.data.unlabelled import image_files, picture


def load(path: Path, name: str) -> str:
    """The message of the error that refuses the images; fails if they are accepted."""
    with pytest.raises(AccordError) as refused:
        datasets.load(name, path=path, tell=lambda _: None)
    return str(refused.value)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCORD_CACHE", str(tmp_path / "cache"))


def good_npz(path: Path) -> bytes:
    rng = np.random.default_rng(0)
    images, labels = rng.integers(0, 255, (12, 8, 8), np.uint8), np.arange(12) % 3
    np.savez_compressed(path, x_train=images, y_train=labels, x_test=images[:6], y_test=labels[:6])
    return path.read_bytes()


def png(size: tuple[int, int] = (8, 8), colour: int = 7) -> bytes:
    out = io.BytesIO()
    Image.new("L", size, colour).save(out, "PNG")
    return out.getvalue()


def test_damaged_bytes_never_raise_anything_else(tmp_path: Path) -> None:
    draws = random.Random(0)
    parquet = tmp_path / "a.parquet"
    _write_parquet(parquet)
    contents = {"npz": good_npz(tmp_path / "a.npz"), "parquet": parquet.read_bytes()}
    for kind, content in contents.items():
        path = tmp_path / f"b.{kind}"
        broken = [b"", b"\0" * 100, b"PK\3\4", draws.randbytes(300), "a: b".encode("utf-16")]
        broken += [content[: draws.randrange(len(content))] for _ in range(10)]
        for one in broken:
            path.write_bytes(one)
            assert load(path, kind)
        for _ in range(60):  # a changed byte may also be harmless
            place = draws.randrange(len(content))
            path.write_bytes(content[:place] + draws.randbytes(1) + content[place + 1 :])
            with contextlib.suppress(AccordError):
                datasets.load(kind, path=path, tell=lambda _: None)


def _write_parquet(path: Path, **metadata: str) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    images = [{"bytes": png(colour=20 * k), "path": None} for k in range(9)]
    table = pa.table({"image": images, "label": [k % 3 for k in range(9)]})
    pq.write_table(table.replace_schema_metadata(dict(metadata)), path)


def test_odd_class_names_of_parquet(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    deep = "[" * 5000 + "]" * 5000
    for text in (deep, "5", "[]", '{"info": 5}', '{"info": {"features": {"label": {"names": 5}}}}'):
        _write_parquet(path, huggingface=text)
        assert "class names" in load(path, "parquet")


def test_npz_bombs_and_lies(tmp_path: Path) -> None:
    path = tmp_path / "bomb.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        with archive.open("x_train.npy", "w", force_zip64=True) as file:
            _header(file, (2_000, 256, 256), "|u1")
            for _ in range(2_000):
                file.write(bytes(256 * 256))
        with archive.open("y_train.npy", "w") as file:
            _header(file, (2_000,), "<i8")
            file.write(bytes(16_000))
    assert path.stat().st_size < 10**6
    assert "unpacks to" in load(path, "npz")
    for shape, kind in (
        ((10**9, 10**6, 10**6), "|u1"),
        ((10**12,), "<U0"),
        ((-1, 8, 8), "|u1"),
        ((4,), "|u1"),
    ):
        with zipfile.ZipFile(path, "w") as archive, archive.open("x_train.npy", "w") as file:
            _header(file, shape, kind)
        assert str(path) in load(path, "npz")
    for member in ("readme.txt", "x_train.npy"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(member, "no array")
        assert "is no array" in load(path, "npz")


def _header(file: object, shape: tuple[int, ...], kind: str) -> None:
    about = {"descr": kind, "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(file, about)  # type: ignore[arg-type]


def test_a_packed_idx_file_that_lies(tmp_path: Path) -> None:
    path = tmp_path / "train-images-idx3-ubyte.gz"
    huge = (2**32 - 1).to_bytes(4, "big") * 3
    header = b"\0\0\x08\x03" + (2).to_bytes(4, "big") * 3
    for content in (b"", b"\0\0\x08\xff", b"\0\0\x08\x03" + huge, header, header + bytes(50_000)):
        with gzip.open(path, "wb") as file:
            file.write(content)
        with pytest.raises(AccordError, match="ubyte"):
            read_idx(path)
    path.write_bytes(b"\x1f\x8b broken")
    with pytest.raises(AccordError, match="ubyte"):
        read_idx(path)


def test_pictures_are_refused_by_their_header() -> None:
    side = int(MOST_PIXELS**0.5) + 1
    for size in ((side, side), (30_000, 30_000), (2**31 - 1, 1), (1, 2**31 - 1)):
        width, height = (one.to_bytes(4, "big") for one in size)
        chunk = b"IHDR" + width + height + b"\x08\0\0\0\0"
        content = b"\x89PNG\r\n\x1a\n\0\0\0\r" + chunk + zlib.crc32(chunk).to_bytes(4, "big")
        with pytest.raises(AccordError, match=r"megapixels|decoded"):
            decode(content, "huge.png")
    draws = random.Random(1)
    for kind in ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM"):
        out = io.BytesIO()
        Image.new("RGB", (9, 9), (1, 2, 3)).save(out, kind)
        for _ in range(60):
            changed = bytearray(out.getvalue())
            for _ in range(draws.randrange(1, 4)):
                changed[draws.randrange(len(changed))] = draws.randrange(256)
            cut = bytes(changed[: draws.randrange(1, len(changed))])
            for one in (bytes(changed), cut):
                with contextlib.suppress(AccordError):
                    decode(one, "odd")


def test_what_pillow_refuses_as_too_large_is_told_in_megapixels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1)
    with pytest.raises(AccordError, match="expected an image of at most 100 megapixels"):
        decode(png(), "huge.png")


def two_classes(folder: Path) -> Path:
    """A folder of two classes with four images each."""
    for label in ("cat", "dog"):
        (folder / label).mkdir(parents=True)
        for number in range(4):
            (folder / label / f"{number}.png").write_bytes(png(colour=number))
    return folder


def test_what_is_no_plain_file_is_never_waited_for(tmp_path: Path) -> None:
    folder = two_classes(tmp_path / "images")
    os.mkfifo(folder / "cat" / "pipe.png")
    assert "pipe.png is a pipe" in load(folder, "folder")
    assert len(image_files([folder])) == 9  # one of them cannot be predicted, which is told then
    made = {"loop.png": "loop.png", "gone.png": "nowhere.png", "up": ".."}
    for name, target in made.items():
        place = tmp_path / name
        (place / name).mkdir(parents=True)
        (place / name / name).symlink_to(target)
        (place / "other").mkdir()
        assert f"{name} is a link to " in load(place, "folder")
    for path in (folder / "cat" / "pipe.png", folder, Path("/dev/zero")):
        with pytest.raises(AccordError, match="expected a plain file"):
            picture(path)
        assert path.exists()
    for kind in ("npz", "parquet", "folder"):
        assert load(folder / "cat" / "pipe.png", kind)


def test_names_that_cannot_be_printed_are_refused(tmp_path: Path) -> None:
    for name in (b"caf\xe9", b"a\x1b[31m", b"a\nb", "a\u202eb".encode()):
        folder = tmp_path / name.hex()
        for label in (b"cat", name):
            inside = os.fsencode(folder) + b"/" + label
            os.makedirs(inside)  # noqa: PTH103 - pathlib takes no bytes
            Path(os.fsdecode(inside), "1.png").write_bytes(png())
        said = load(folder, "folder")
        assert "Rename this" in said
        assert said.isprintable()


def test_an_empty_class_folder_is_noticed_with_a_warm_cache(tmp_path: Path) -> None:
    folder = two_classes(tmp_path / "images")
    datasets.load("folder", path=folder, tell=lambda _: None)
    (folder / "emu").mkdir()
    assert "found none" in load(folder, "folder")


def test_every_value_in_the_cache_is_sealed(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    good_npz(path)
    fresh = datasets.load("npz", path=path, tell=lambda _: None)
    meta = fresh.folder / "meta.json"
    text = meta.read_text("utf-8")
    changes = {'"mean": [\n  0.5': '"mean": [\n  0.6', '"0"': '"zero"', "upright": "none"}
    for before, after in {**changes, text: "", '"std"': '"std', "{": "[" * 3000}.items():
        assert before in text
        meta.write_text(text.replace(before, after, 1), "utf-8")
        with pytest.raises(AccordError, match="damaged"):
            datasets.open_cached(fresh.folder)
        told: list[str] = []
        again = datasets.load("npz", path=path, tell=told.append)
        assert (again.mean, again.classes) == (fresh.mean, fresh.classes)
        assert any("decoded again" in line for line in told)
        assert meta.read_text("utf-8") == text
