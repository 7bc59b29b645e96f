"""TensorBoard: event files below RUN/tensorboard. Show them with `tensorboard --logdir`.

RUN/tensorboard/TRIAL/              figures of every fusion at the checkpoints, by epoch
RUN/tensorboard/TRIAL/client-NAME/  losses, λ, σ and gradients of a client, by epoch
"""

from __future__ import annotations

from pathlib import Path

from accord.core.errors import AccordError
from accord.core.files import read_json, write_json
from accord.core.replacing import new_version
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
        if folder.exists() and any(folder.iterdir()) and not (folder / WRITTEN).is_file():
            raise AccordError(f"{folder} holds files of another program. Move it away")
        with new_version(folder) as partial:
            for client in dict.fromkeys(one.client for one in course.values):
                values = [one for one in course.values if one.client == client]
                place = partial / client_file(client) if client is not None else partial
                _write_events(place, values)
            write_json(partial / WRITTEN, {"content": course.digest})


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
