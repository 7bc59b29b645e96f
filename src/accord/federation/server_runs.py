"""The runs of the server's own work that trials wait for: teachers and maps of fixed features."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from accord.data.allocation_keys import public_key
from accord.federation.briefing import settled_map
from accord.federation.keys import bank_of, key_of, training_key
from accord.federation.map_run import MapRun
from accord.federation.teacher import NAME, teacher_trial
from accord.federation.teacher_run import TeacherRun
from accord.federation.teaching import labelling_model, trained_here
from accord.record.folders import TrialFolder
from accord.record.record import Record
from accord.study.recipe import ClosedFormRecipe
from accord.study.study import Trial

if TYPE_CHECKING:
    from accord.federation.plan import Plan
    from accord.federation.trial_run import TrialRun


def teacher_run(
    plan: Plan, trial: Trial, before: TrialRun | None, record: Record
) -> TeacherRun | None:
    """The teacher that encodes the public images for a bank, or that is part of a map.

    `before` is the trial whose result labels the public images.
    """
    bank, teachers = bank_of(trial), 1
    if isinstance(trial.recipe, ClosedFormRecipe):
        teachers = trial.recipe.map.teachers
    elif bank is None and not trained_here(trial):
        return None
    if not teachers:
        return None
    key, allocation = plan.allocation(trial)
    source = TrialFolder(Path(bank.source)) if bank and bank.source else None
    teacher, images = teacher_trial(trial), public_key(allocation)
    known = (
        key_of(images, plan.digest(source))
        if source
        else training_key(teacher, images, [NAME], None)
    )
    labeller = labelling_model(trial)
    if before is not None:
        known = key_of(known, before.folder.id)
    elif labeller is not None:
        known = key_of(known, labeller.seals)
    several = f"{teachers}-" if teachers > 1 else ""
    folder = record.teacher(f"teacher-{several}s{trial.seed}-{known}")
    return TeacherRun(
        teacher,
        record,
        folder,
        allocation,
        key,
        source=source,
        teachers=teachers,
        encodes=not trained_here(trial),
        before=before,
        labeller=str(labeller.folder) if labeller else None,
    )


def map_run(
    plan: Plan,
    trial: Trial,
    teacher: TeacherRun | None,
    before: TrialRun | None,
    record: Record,
) -> MapRun | None:
    """The run that draws the fixed features of a closed form, of which `before` makes a part."""
    if not isinstance(trial.recipe, ClosedFormRecipe):
        return None
    key, allocation = plan.allocation(trial)
    settled = settled_map(trial, trial.recipe, allocation)
    channels = allocation.dataset.train.images.shape[3]
    images = public_key(allocation) if settled.needs_public else channels
    origin = teacher.folder.id if teacher else None
    parts = [settled.model_dump(mode="json"), images, trial.seed, origin]
    known = key_of(*parts, *([before.folder.id] if before else []))
    folder = record.teacher(f"map-s{trial.seed}-{known}")
    alone = replace(trial, axes=())  # it can serve several cells of the grid
    return MapRun(
        alone, record, folder, allocation, key, map=settled, teacher=teacher, before=before
    )
