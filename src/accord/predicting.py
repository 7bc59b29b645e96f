"""A saved model at work on image files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image
from rich.table import Table

from accord.data.decode import SUFFIXES, decode
from accord.data.images import Bytes
from accord.data.imageset import ImageSet
from accord.errors import AccordError
from accord.moments import EVAL_BATCH
from accord.predictor import Predictor
from accord.report.tables import plain_table


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image."""

    file: str
    label: str
    confidence: float
    confidences: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {("class" if key == "label" else key): value for key, value in asdict(self).items()}


def predict(model: Predictor, paths: Sequence[Path]) -> list[Prediction]:
    """Every image in `paths`, files or folders, one by one as far as the answer is concerned."""
    files = image_files(paths)
    header = model.header
    found = []
    for start in range(0, len(files), EVAL_BATCH):
        some = files[start : start + EVAL_BATCH]
        pixels = np.stack([_pixels(file, model) for file in some])
        images = ImageSet(pixels, np.arange(len(some)), np.zeros(len(some), dtype=np.int64))
        for file, row in zip(some, model.scores(images).softmax(dim=1).tolist(), strict=True):
            confidences = dict(zip(header.classes, row, strict=True))
            label = max(confidences, key=confidences.__getitem__)
            found.append(Prediction(str(file), label, confidences[label], confidences))
    return found


def image_files(paths: Sequence[Path]) -> list[Path]:
    """Files as they are named, folders with all images in and below them, in order of name."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            inside = [p for p in sorted(path.rglob("*")) if p.suffix.lower() in SUFFIXES]
            if not inside:
                raise AccordError(f"{path}: expected images ({', '.join(SUFFIXES)}); found none.")
            found += inside
        elif path.is_file():
            found.append(path)
        else:
            raise AccordError(f"{path}: expected an image or a folder of images; found nothing.")
    return found


def _pixels(file: Path, model: Predictor) -> Bytes:
    """(H, W, C) as the model expects them, whatever the file holds."""
    header = model.header
    picture = decode(file.read_bytes(), str(file)).convert("L" if header.channels == 1 else "RGB")
    if picture.size != (header.width, header.height):
        picture = picture.resize((header.width, header.height), Image.Resampling.BILINEAR)
    pixels: Bytes = np.asarray(picture)
    return pixels.reshape(header.height, header.width, header.channels)


def prediction_table(found: Sequence[Prediction]) -> Table:
    rows = [(p.file, p.label, f"{p.confidence:.1%}") for p in found]
    return plain_table(("image", "class", "confidence"), rows, numbers=("confidence",))
