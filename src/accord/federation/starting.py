"""The server's state at the start of a trial."""

from __future__ import annotations

from accord.data.allocation import Allocation
from accord.federation.briefing import opening
from accord.federation.map_run import MapRun
from accord.federation.teacher_run import TeacherRun
from accord.federation.teaching import Teacher, teacher_from, teacher_header
from accord.messages import Briefing, ServerState
from accord.study.study import Trial


def first_state(
    trial: Trial, allocation: Allocation, teacher: TeacherRun | None, drawn: MapRun | None
) -> ServerState:
    """The state of round 1, from the finished runs of the trial's teacher and map."""
    return trial.method.start(first_briefing(trial, allocation, teacher, drawn))


def first_briefing(
    trial: Trial, allocation: Allocation, teacher: TeacherRun | None, drawn: MapRun | None
) -> Briefing:
    """The opening of a trial, from the finished runs of its teacher and map."""
    public = teacher.rows() if teacher is not None and teacher.encodes else None
    values = drawn.drawn().tensors if drawn is not None else None
    taught = _taught(trial, allocation, teacher)
    labels = teacher.labels() if teacher is not None else None
    return opening(trial, allocation, public, values, taught, labels)


def _taught(trial: Trial, allocation: Allocation, run: TeacherRun | None) -> Teacher | None:
    """The teacher that a trial learns from; `run` has trained it, if the server did so."""
    if not trial.needs_teacher:
        return None
    if run is None:
        return teacher_from(trial, allocation)
    return Teacher(teacher_header(trial, allocation), run.weights())
