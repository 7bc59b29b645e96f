"""Rehearses a study in a worker: every kind of its work once, on few images, in a temporary record.

The worker is started as those of the study are, so that its peak memory is that of the study, and
its CPU time is that of the study's jobs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from accord.client.studied import without_public
from accord.core.errors import AccordError
from accord.engines.base import Engine, Job, Message
from accord.federation.briefing import opening, rehearse, rehearsed_state
from accord.federation.keys import kind_of_work
from accord.federation.map_run import MapRun
from accord.federation.rehearsal.client_work import STEPS
from accord.federation.rehearsal.speed import Speed
from accord.federation.tasks import Task
from accord.federation.tasks.draw import VALUES, DrawMap
from accord.federation.tasks.outcome import Outcome
from accord.federation.tasks.rehearse import Rehearse
from accord.federation.teacher_run import TeacherRun
from accord.federation.trial_run import TrialRun
from accord.federation.work import Run
from accord.fusion.named import NamedFusion
from accord.messages import NET, MapValues, Upload, UploadHeader
from accord.record.record import Record
from accord.study.recipe import TrainingRecipe
from accord.study.study import Trial

SENDERS = 2  # uploads that the server's work is timed with; its memory does not depend on them


@dataclass
class Rehearsal:
    """Measures the speed of runs with an `engine` that has one worker; `stage` is its record."""

    stage: Record
    engine: Engine[Task]
    tell: Callable[[str], None]
    speeds: dict[str, Speed] = field(default_factory=dict)  # kind of work → its speed
    drawing: dict[str, float] = field(default_factory=dict)  # name of a map → seconds
    memory: int = 0  # bytes: the peak of the worker

    def measure(self, runs: Sequence[Run]) -> None:
        """Draws every map that is missing, and rehearses every kind of work."""
        self.engine.open(self.stage.path)
        for run in runs:
            if isinstance(run, MapRun) and not run.over:
                self._draw(run)
        kinds: dict[str, list[Run]] = {}
        for run in runs:
            if not isinstance(run, MapRun):
                kinds.setdefault(kind_of_work(run.trial), []).append(run)
        for index, (kind, alike) in enumerate(kinds.items()):
            largest = max(alike, key=lambda run: (isinstance(run, TrialRun), _largest(run)[1]))
            self.tell(f"measuring the work of {largest.trial.recipe.name} …")
            named = {name_of(one): one for run in alike for one in run.trial.fusions}
            self.speeds[kind] = self._rehearse(largest, named, f"trials/{index}")

    def _perform(self, task: Task) -> dict[str, Any]:
        """Lets the worker do a task; returns its answer."""
        heard: list[Message[Task]] = []
        self.engine.ask(Job(task, 1.0))
        while self.engine.busy():
            self.engine.hear(lambda message: heard.append(message))
        ended = heard[-1]
        if ended.kind == "failed":
            raise AccordError(f"the costs cannot be estimated: {ended.body['message']}")
        result: dict[str, Any] = ended.body["result"]
        self.memory = max(self.memory, result["peak_memory"])
        return result

    # --- the map of a closed form --------------------------------------------------------------

    def _draw(self, run: MapRun) -> None:
        """Draws a map as the study will; its teachers have their initial weights."""
        self.tell(f"measuring the map of {run.trial.recipe.name} …")
        run.allocation.save(self.stage.allocation(run.key))
        names: tuple[str, ...] = ()
        if run.teacher is not None:
            names = run.teacher.clients
            folder = self.stage.folder(run.teacher.place).last_round
            first = opening(run.teacher.trial, run.allocation)
            for name in names:
                header = UploadHeader(client=name, epoch=0, samples=1, briefing=first.digest)
                Upload(header, first.tensors).save(folder.upload(name, 0, last=True))
        task = DrawMap(
            place=run.place,
            allocation=run.key,
            map=run.map.model_dump(mode="json"),
            seed=run.trial.seed,
            teacher=run.teacher.place if run.teacher else None,
            names=names,
            before=self._made_up(run.before) if run.before else None,
        )
        self.drawing[run.folder.id] = self._perform(task)["core_seconds"]

    def _made_up(self, run: TrialRun) -> Outcome:
        """An outcome of a trial that has not run yet: one client with the initial weights."""
        name, folder = run.clients[0], self.stage.folder(run.place).round(1)
        first = rehearse(run.trial, run.allocation)
        first.save(folder.briefing)
        header = UploadHeader(client=name, epoch=0, samples=1, briefing=first.digest)
        counts = torch.ones(len(first.header.classes), dtype=torch.int64)
        net = {n: t for n, t in first.tensors.items() if n.startswith(NET)}
        Upload(header, {**net, "label_counts": counts}).save(folder.upload(name, 0, last=True))
        return Outcome(
            place=run.place,
            round=1,
            epoch=0,
            clients=(name,),
            fusion=run.trial.fusions[0].spec,
            made_up=True,
        )

    def _values(self, run: Run) -> Any:
        """The values of a trial's map, if it has one: from the study's record, or drawn here."""
        drawn = run.map if isinstance(run, TrialRun) else None
        if drawn is None:
            return None
        if drawn.over:
            return drawn.drawn().tensors
        return MapValues.load(self.stage.folder(drawn.place).path / VALUES).tensors

    # --- one kind of work ----------------------------------------------------------------------

    def _rehearse(self, run: Run, fusions: dict[str, NamedFusion], place: str) -> Speed:
        run.allocation.save(self.stage.allocation(run.key))
        trial = longer(run.trial)
        state = rehearsed_state(trial, run.allocation, self._values(run))
        folder = self.stage.folder(place).round(1)
        state.save(folder.server_state)
        # Public images would make the steps of few images many.
        without_public(trial.method.brief(state)).save(folder.briefing)
        index, _ = _largest(run)
        asked = run.question(run.clients[index or 0], index, 1.0).task
        at_server: dict[str, Any] = {"fusions": {}}
        if isinstance(run, TrialRun):
            begins = run.trial.recipe.several_rounds or run.measuring.scope.uses_final_state
            at_server = {
                "senders": run.clients[:SENDERS],
                "method": trial.method_spec if begins else None,
                "fusions": {name: one.spec for name, one in fusions.items()},
                "server_device": run.device,
            }
        task = Rehearse(**{**asked.model_dump(), "place": place, **at_server})
        return Speed.model_validate(self._perform(task)["speed"])


def name_of(fusion: NamedFusion) -> str:
    """A name of a rule that does not depend on its label: several recipes may use the label."""
    return json.dumps(fusion.spec, sort_keys=True)


def longer(trial: Trial) -> Trial:
    """The trial with enough epochs for all steps that are timed."""
    recipe, setup = trial.recipe, trial.setup
    if not isinstance(recipe, TrainingRecipe):
        return trial
    enough = recipe.alignment_epochs + 1 + STEPS
    budget = setup.budget.model_copy(update={"epochs": max(setup.budget.epochs, enough)})
    return replace(trial, setup=setup.model_copy(update={"budget": budget}))


def _largest(run: Run) -> tuple[int | None, int]:
    """The index of the largest client and its number of images; a teacher has the public ones."""
    if isinstance(run, TeacherRun):
        return None, run.images
    sizes = run.allocation.partition.label_counts.sum(axis=1)
    return int(sizes.argmax()), int(sizes.max())
