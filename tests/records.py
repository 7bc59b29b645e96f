"""Comparing records: all that two runs must share, and nothing that a clock decides."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from accord.record.folders import TrialFolder

TIMED = ("seconds", "server_seconds", "trial")


def timeless(run_dir: Path) -> list[dict[str, str]]:
    """The rows of results.csv without what a clock decides."""
    with (run_dir / "results.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(file)]


def upload_files(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("trials/*/uploads/*.safetensors"))


def assert_same_uploads(one: Path, two: Path) -> None:
    """The same files, with the same bytes."""
    names = [path.relative_to(one) for path in upload_files(one)]
    assert names == [path.relative_to(two) for path in upload_files(two)]
    assert names
    for name in names:
        assert (one / name).read_bytes() == (two / name).read_bytes(), name


def modified(run_dir: Path) -> dict[str, int]:
    """When each upload was written."""
    paths = upload_files(run_dir)
    return {f"{p.parent.parent.name}/{p.name}": p.stat().st_mtime_ns for p in paths}


def contents(run_dir: Path) -> dict[str, bytes]:
    """Every file of a record, and what is in it."""
    paths = (path for path in run_dir.rglob("*") if path.is_file() and path.name != ".lock")
    return {str(path.relative_to(run_dir)): path.read_bytes() for path in sorted(paths)}


def teachers(run_dir: Path) -> list[TrialFolder]:
    """The server's own nets."""
    return [TrialFolder(path) for path in sorted(run_dir.glob("teachers/*"))]


def assert_same_teachers(one: Path, two: Path) -> None:
    """The same nets and public features, bit for bit."""
    pairs = list(zip(teachers(one), teachers(two), strict=True))
    assert pairs
    for a, b in pairs:
        assert a.id == b.id
        (path,), (other,) = ([*x.path.glob("uploads/*")] for x in (a, b))
        assert path.read_bytes() == other.read_bytes()
        for name in ("briefing.safetensors", "features.safetensors"):
            assert (a.path / name).read_bytes() == (b.path / name).read_bytes()
        for x in (a, b):
            assert x.info()["status"] == "finished"
            assert x.events.exists()


def hundred_classes(folder: Path) -> Path:
    """A file of 400 noise images: more classes than the smallest encoder is wide."""
    images = np.random.default_rng(0).integers(0, 256, (400, 8, 8), dtype=np.uint8)
    np.savez(folder / "many.npz", images=images, labels=np.arange(400) % 100)
    return folder / "many.npz"
