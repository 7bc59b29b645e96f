"""Healthy inputs, made once: a study, its run, a model, messages of a files exchange, images."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from PIL import Image

import accord

STUDY: dict[str, Any] = {
    "name": "tiny",
    "data": {"name": "digits", "train_limit": 150, "test_limit": 60, "validation": 0.1},
    "partition": {"alpha": 0.5, "clients": 3},
    "net": {"backbone": "conv4"},
    "budget": {"epochs": 2, "batch": 32},
    "recipes": ["fafi"],
    "references": False,
}
SMALL_MAP = {"blocks": [{"use": "patches", "size": 3, "count": 20, "grid": 2}]}
SUMS = {
    **STUDY,
    "name": "sums",
    "recipes": [{"use": "closed-form", "map": SMALL_MAP, "as": "sums"}],
}


class Stage:
    """A folder with healthy inputs.

    study.yaml, run, sums (runs), model, briefing.safetensors, upload.safetensors, images (folder
    of classes), images.npz, images.parquet, one.png.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        if not (folder / "ready").exists():
            # In a process of its own: after a fork, PyTorch must not have computed anything.
            subprocess.run([sys.executable, "-m", "badinputs.stage", str(folder)], check=True)
            (folder / "ready").touch()

    def copy(self, names: tuple[str, ...], folder: Path) -> None:
        for name in names:
            source = self.folder / name
            if source.is_dir():
                shutil.copytree(source, folder / name)
            else:
                shutil.copyfile(source, folder / name)


def _make(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "study.yaml").write_text(yaml.safe_dump(STUDY))
    images = _images(folder)
    run: dict[str, Any] = {"workers": 1, "quiet": True}
    accord.run(STUDY, out=folder / "run", **run)
    accord.run(SUMS, out=folder / "sums", **run)
    accord.fuse(folder / "run", ["outputs"], save=folder / "model", **run)
    _exchange(folder, images)


def _images(folder: Path) -> Path:
    draws = np.random.default_rng(0)
    pixels = draws.integers(0, 256, (40, 8, 8, 1), dtype=np.uint8)
    labels = np.arange(40) % 10
    for index, (picture, label) in enumerate(zip(pixels, labels, strict=True)):
        path = folder / "images" / str(label) / f"{index}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(picture[..., 0]).save(path)
    Image.fromarray(pixels[0, ..., 0]).save(folder / "one.png")
    np.savez(folder / "images.npz", images=pixels, labels=labels)
    return folder / "images"


def _exchange(folder: Path, images: Path) -> None:
    briefing = folder / "briefing.safetensors"
    trial = next((folder / "run" / "trials").iterdir())
    shutil.copyfile(trial / "briefing.safetensors", briefing)
    upload = accord.answer(briefing, images, name="clinic", keep=folder / "kept")
    upload.save(folder / "upload.safetensors")


if __name__ == "__main__":
    _make(Path(sys.argv[1]))
