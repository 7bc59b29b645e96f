"""The runs that a trial waits for: its teacher, its map, and a trial with the same training."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from accord.federation.trial_run import TrialRun


def can_begin(run: TrialRun) -> bool:
    """Whether everything that the trial needs is there, or cannot come any more."""
    helpers = [helper for helper in (run.teacher, run.map) if helper is not None]
    if run.unbriefed and not all(helper.over for helper in helpers):
        return False
    return run.twin is None or run.twin.trained or run.twin.over


def failed_before(run: TrialRun) -> list[str]:
    """The reasons why the trial cannot begin, if something that it needs has failed."""
    if run.teacher is not None and run.unbriefed and run.teacher.status == "failed":
        reasons = [reason.removeprefix("the teacher: ") for reason in run.teacher.failures]
        return [f"its teacher {run.teacher.folder.id} failed: {' '.join(reasons)}"]
    if run.map is not None and run.unbriefed and run.map.status == "failed":
        return [f"its map {run.map.folder.id} could not be drawn: {' '.join(run.map.failures)}"]
    if run.twin is not None and run.twin.status == "failed" and run.untrained():
        return [f"it shares the training of {run.twin.folder.id}, which failed"]
    return []
