"""Predictions of a saved model for image files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from PIL import Image

from accord.core.errors import AccordError
from accord.core.text import printable
from accord.data.decode import PEAK, refuse_dark
from accord.data.unlabelled import as_images, image_files, picture
from accord.model.predictor import Predictor
from accord.nets.inference import EVAL_BATCH


@dataclass(frozen=True)
class Prediction:
    """A model's prediction for one image."""

    file: str
    label: str
    confidence: float
    confidences: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        return {("class" if key == "label" else key): value for key, value in asdict(self).items()}


def predict(
    model: Predictor, paths: Sequence[Path], tell: Callable[[str], None]
) -> list[Prediction]:
    """The prediction for every image in `paths`, which are files or folders.

    A prediction does not depend on the other images. `tell` gets a message for each file that is
    not an image; the other files are still predicted.
    """
    files = image_files(paths)
    found: list[Prediction] = []
    peak, brightest = -1, paths[0]  # of all 16-bit images, to check their scale
    for start in range(0, len(files), EVAL_BATCH):
        readable = _readable(files[start : start + EVAL_BATCH], tell)
        if not readable:
            continue
        for file, one in readable.items():
            if one.info.get(PEAK, -1) > peak:
                peak, brightest = one.info[PEAK], file
        images = as_images(list(readable.values()), model.header)
        scores = model.scores(images)
        if not bool(scores.isfinite().all()):
            raise AccordError(
                "the model gives NaN or infinity, so its answers mean nothing. Fuse it again "
                "without the client whose net is damaged."
            )
        answers = scores.softmax(dim=1).tolist()
        found += [_prediction(f, row, model) for f, row in zip(readable, answers, strict=True)]
    refuse_dark(peak, str(brightest))
    return found


def _readable(files: Sequence[Path], tell: Callable[[str], None]) -> dict[Path, Image.Image]:
    found = {}
    for file in files:
        try:
            found[file] = picture(file)
        except AccordError as error:
            tell(str(error))
    return found


def _prediction(file: Path, row: list[float], model: Predictor) -> Prediction:
    confidences = dict(zip(model.header.classes, row, strict=True))
    label = max(confidences, key=confidences.__getitem__)
    return Prediction(str(file), label, confidences[label], confidences)


def prediction_lines(found: Sequence[Prediction]) -> list[str]:
    """One line per image: class, confidence and file. The file is last, so that it is never cut."""
    wide = max((len(one.label) for one in found), default=0)
    return [printable(f"{one.label:<{wide}}  {one.confidence:6.1%}  {one.file}") for one in found]
