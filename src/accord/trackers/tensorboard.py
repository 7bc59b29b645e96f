"""TensorBoard: event files below RUN/tensorboard. Show them with `tensorboard --logdir`.

RUN/tensorboard/TRIAL/              figures of every fusion at the checkpoints, by epoch
RUN/tensorboard/TRIAL/client-NAME/  losses, λ, σ and gradients of a client, by epoch
"""

from __future__ import annotations

import shutil
from pathlib import Path

from accord.core.errors import AccordError
from accord.core.files import read_json, write_json
from accord.record.folders import client_file
from accord.trackers.base import Tracker, trackers
from accord.trackers.course import Course, Value

WRITTEN = "accord.json"  # says which content the event files have; it is written last


@trackers.register("tensorboard")
class TensorBoard(Tracker):
    """Writes all event files of a trial at once, and writes them again if the trial changed."""

    name = "tensorboard"
    needs = ("tensorboard",)

    def write(self, course: Course) -> None:
        folder = self.record.path / "tensorboard" / course.trial
        if _content(folder) == course.digest:
            return
        partial = folder.with_name(f".{course.trial}.partial")
        for path in (partial, folder):
            shutil.rmtree(path, ignore_errors=True)
        for client in dict.fromkeys(one.client for one in course.values):
            values = [one for one in course.values if one.client == client]
            _write_events(partial / client_file(client) if client is not None else partial, values)
        write_json(partial / WRITTEN, {"content": course.digest})
        partial.rename(folder)


def _content(folder: Path) -> str | None:
    """The digest of what was written before; None if there is nothing whole."""
    try:
        found = read_json(folder / WRITTEN)
    except AccordError:
        return None
    return found.get("content") if isinstance(found, dict) else None


def _write_events(folder: Path, values: list[Value]) -> None:
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(str(folder)) as writer:
        for one in values:
            writer.add_scalar(one.name, one.value, one.epoch)
