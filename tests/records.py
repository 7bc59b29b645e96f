"""Comparing records: all that two runs must share, and nothing that a clock decides."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import torch

from accord.messages import Upload

TIMED = ("seconds", "upload_bytes", "trial")  # uploads carry telemetry, which holds seconds


def timeless(run_dir: Path) -> list[dict[str, str]]:
    """The rows of results.csv without what a clock decides."""
    with (run_dir / "results.csv").open() as file:
        return [{k: v for k, v in row.items() if k not in TIMED} for row in csv.DictReader(file)]


def upload_files(run_dir: Path) -> list[Path]:
    return sorted(run_dir.glob("trials/*/uploads/*.safetensors"))


def assert_same_uploads(one: Path, two: Path) -> None:
    """The same files, holding the same bits."""
    names = [path.relative_to(one) for path in upload_files(one)]
    assert names == [path.relative_to(two) for path in upload_files(two)]
    assert names
    for name in names:
        a, b = Upload.load(one / name).tensors, Upload.load(two / name).tensors
        assert a.keys() == b.keys()
        assert all(torch.equal(a[key], b[key]) for key in a), name


def modified(run_dir: Path) -> dict[str, int]:
    """When each upload was written."""
    paths = upload_files(run_dir)
    return {f"{p.parent.parent.name}/{p.name}": p.stat().st_mtime_ns for p in paths}


def hundred_classes(folder: Path) -> Path:
    """A file of 400 noise images: more classes than the smallest encoder is wide."""
    images = np.random.default_rng(0).integers(0, 256, (400, 8, 8), dtype=np.uint8)
    np.savez(folder / "many.npz", images=images, labels=np.arange(400) % 100)
    return folder / "many.npz"
