"""Feeds the trackers of a study. A tracker that fails changes nothing in the study."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from accord.core.text import one_line
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.trackers.base import Tracker, trackers
from accord.trackers.course import course_of


def check_names(names: Sequence[str]) -> None:
    """Refuses trackers that do not exist."""
    for name in names:
        trackers.get(name)


class Tracking:
    """The trackers that a study asks for."""

    def __init__(self, names: Sequence[str], record: Record, tell: Callable[[str], None]) -> None:
        self.tell = tell
        kinds = [trackers.get(name) for name in names]
        for kind in kinds:
            kind.require()
        self.working: list[Tracker] = [kind(record) for kind in kinds]

    def add(self, trial: TrialFolder) -> None:
        """Copies a trial that has ended. A tracker that fails is not used again in this run."""
        for tracker in list(self.working):
            try:
                tracker.write(course_of(trial))
            except Exception as error:
                self.working.remove(tracker)
                why = one_line(f"{type(error).__name__}: {error}", 120)
                self.tell(
                    f"track: {tracker.name} failed and gets no more trials in this run ({why}). "
                    "The study goes on; the next run copies what is missing."
                )
