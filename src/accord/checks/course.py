"""The course of a client's work: its epoch, its telemetry and its number of steps."""

from __future__ import annotations

import math
from typing import Any

from accord.core.errors import AccordError
from accord.messages import Briefing, Upload

COUNT = "num_batches_tracked"
MOST_KEYS = 200  # of an event; honest clients have about 30
LONGEST_KEY = 100  # characters
LARGEST = 1e40  # no number of float32 is larger, and telemetry is computed from such numbers


def check_course(upload: Upload, briefing: Briefing, where: str) -> None:
    header = briefing.header
    epochs = [header.first_epoch + epoch for epoch in header.budget.checkpoints]
    if upload.header.epoch not in epochs:
        wanted = ", ".join(map(str, epochs))
        raise AccordError(
            f"{where}: expected an upload after epoch {wanted}, as the briefing asks; found epoch "
            f"{upload.header.epoch}."
        )
    _check_telemetry(upload, header.first_epoch, where)
    if header.uploads == "nets":
        _check_steps(upload, briefing, where)


def _check_telemetry(upload: Upload, first: int, where: str) -> None:
    """One event for each epoch of the round, in order, and only finite numbers."""
    wanted = list(range(first + 1, upload.header.epoch + 1))
    found = [event["epoch"] for event in upload.header.telemetry]
    if found != wanted:
        raise AccordError(
            f"{where}: expected telemetry of the epochs {_range(wanted)}, each once and in order; "
            f"found {_range(found)}."
        )
    for event in upload.header.telemetry:
        if len(event) > MOST_KEYS or any(len(key) > LONGEST_KEY for key in event):
            raise AccordError(
                f"{where}: expected at most {MOST_KEYS} figures in the telemetry of an epoch, with "
                f"names of up to {LONGEST_KEY} characters; found more."
            )
        odd = [key for key, value in event.items() if not _possible(value)]
        if odd:
            raise AccordError(
                f"{where}: the telemetry of epoch {event['epoch']} should hold finite numbers up "
                f"to {LARGEST:g}; found {odd[0]!r} = {str(event[odd[0]])[:30]}."
            )


def _possible(value: Any) -> bool:
    if value is None:
        return True
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= LARGEST  # NaN is not


def _check_steps(upload: Upload, briefing: Briefing, where: str) -> None:
    """Every step counts one batch in every batch norm."""
    header = briefing.header
    epochs = upload.header.epoch - header.first_epoch
    images = upload.header.samples + briefing.public_images
    steps = epochs * math.ceil(images / header.budget.batch)
    for name, before in briefing.tensors.items():
        if name.endswith(COUNT) and name in upload.tensors:
            found, wanted = int(upload.tensors[name]), int(before) + steps
            if found != wanted:
                raise AccordError(
                    f"{where}: tensor {name!r} should be {wanted}: {steps} steps of up to "
                    f"{header.budget.batch} of {images} images; found "
                    f"{found}."
                )


def _range(epochs: list[Any]) -> str:
    few = [str(epoch)[:20] for epoch in epochs[:5]]
    return f"{', '.join(few) or 'none'}{', …' if len(epochs) > 5 else ''}"
