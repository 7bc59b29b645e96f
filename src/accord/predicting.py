"""A saved model at work on image files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.table import Table

from accord.data.unlabelled import image_files, read_images
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
        images = read_images(some, header)
        for file, row in zip(some, model.scores(images).softmax(dim=1).tolist(), strict=True):
            confidences = dict(zip(header.classes, row, strict=True))
            label = max(confidences, key=confidences.__getitem__)
            found.append(Prediction(str(file), label, confidences[label], confidences))
    return found


def prediction_table(found: Sequence[Prediction]) -> Table:
    rows = [(p.file, p.label, f"{p.confidence:.1%}") for p in found]
    return plain_table(("image", "class", "confidence"), rows, numbers=("confidence",))
