"""Some test images with what the best model of a setting says about them."""

from __future__ import annotations

from typing import Any

from accord.core.errors import AccordError
from accord.core.names import shown
from accord.page.grid import places_of
from accord.page.parts import Gallery, Part, Prose, Thumbnail
from accord.page.pictures import thumbnail
from accord.page.section import section
from accord.page.subject import Subject, name_of
from accord.report.evidence import Evidence
from accord.report.example_images import example_images

PLACES = 3
KEYS = {"image": int, "label": int, "predicted": int, "confidence": float}


@section("examples", "Examples", 110)
def examples(subject: Subject) -> list[Part]:
    parts: list[Part] = []
    for place in places_of(subject)[:PLACES]:
        best = place.best
        if best is None:
            continue
        trial = next(iter(subject.trials_of(best).values()))
        found = examples_of(trial, best.fusion)
        if not found:
            continue
        record = next(run.record for run in subject.runs if run.label == trial.run)
        try:
            pixels = example_images(record, trial.info, found)
        except (AccordError, OSError) as error:
            parts.append(Prose(f"The test images cannot be shown: {error}", quiet=True))
            continue
        images = [_image(one, dots, trial) for one, dots in zip(found, pixels, strict=True)]
        parts.append(Gallery(images, _caption(name_of(best), place.words, trial)))
    return parts


def examples_of(trial: Evidence, fusion: str) -> list[dict[str, Any]]:
    """The examples of a fusion that are complete and name known classes."""
    measured = (trial.final or {}).get("fusions", {}).get(fusion, {})
    found = measured.get("examples")
    if not isinstance(found, list):
        return []
    return [one for one in found if _complete(one, len(trial.classes))]


def _complete(one: Any, classes: int) -> bool:
    if not isinstance(one, dict) or not all(isinstance(one.get(k), t) for k, t in KEYS.items()):
        return False
    return all(0 <= one[key] < classes for key in ("label", "predicted"))


def _image(one: dict[str, Any], pixels: Any, trial: Evidence) -> Thumbnail:
    said, true = (shown(trial.classes[one[key]]) for key in ("predicted", "label"))
    sure = f"{100 * one['confidence']:.0f} %"
    right = one["label"] == one["predicted"]
    words = f"✓ {said}, {sure}" if right else f"✗ {said}, {sure}; true: {true}"
    return Thumbnail(thumbnail(pixels), words, right)


def _caption(name: str, where: str, trial: Evidence) -> str:
    return (
        f"{shown(name)}, {where}, seed {trial.seed}: what the model says and how sure it is. First "
        "wrong answers (✗, dashed) of which it is most sure, then right ones (✓); of the first "
        "test images only."
    )
