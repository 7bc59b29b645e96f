"""Estimates the cost of a study from a few real steps of each kind of training (`--dry-run`)."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from pathlib import Path

import psutil
import torch
from rich.console import RenderableType

from accord.client.make import make_client
from accord.client.summing import ROWS, Summing
from accord.client.training import Training
from accord.core.budget import Budget
from accord.data.imageset import ImageSet
from accord.engines.local import workers_for
from accord.federation.briefing import rehearse
from accord.federation.keys import kind_of_work
from accord.federation.map_run import MapRun
from accord.federation.measuring.agenda import FORWARD
from accord.federation.plan import Plan
from accord.federation.tasks.base import one_thread, peak_memory
from accord.federation.teacher_run import TeacherRun
from accord.federation.trial_run import TrialRun
from accord.federation.work import Run
from accord.nets.inference import EVAL_BATCH, forward_all
from accord.record.record import Record
from accord.report.progress import spoken
from accord.report.tables import plain_table
from accord.report.terminal import tell
from accord.study.recipe import TrainingRecipe
from accord.study.study import Study, Trial

STEPS = 3  # steps that are timed, after one warm-up step
ENOUGH = 5.0  # seconds after which no further step is timed
FACTORS = 30  # cost of solving a ridge, in Cholesky factorisations of its matrix


@dataclass(frozen=True)
class Speed:
    """The speed of one kind of training on one core."""

    step: float  # seconds per step
    look: float  # additional seconds of a step that measures the gradients
    forward: float  # seconds per image
    upload_bytes: int
    briefing_bytes: int
    width: int  # number of features
    solving: float = 0.0  # seconds to fuse sums

    def training(self, images: int, budget: Budget) -> float:
        """The seconds of all epochs of a client with this number of images."""
        steps = -(-images // budget.batch)
        looks = max(1.0, steps / budget.look_every)
        return budget.epochs * (steps * self.step + looks * self.look)


@dataclass(frozen=True)
class Cost:
    """The cost of one trial or teacher."""

    name: str
    rounds: int
    sizes: list[int]  # images per client
    train_seconds: list[float]  # on one core, of each client in each remaining round
    measure_seconds: float
    upload_bytes: int
    download_bytes: int
    disk_bytes: int
    note: str
    teacher: bool = False

    @property
    def longest(self) -> float:
        """The time of the largest client in all rounds, which follow each other."""
        return self.rounds * max(self.train_seconds, default=0.0)

    def cells(self, several_rounds: bool) -> tuple[str, ...]:
        low, high = min(self.sizes), max(self.sizes)
        return (
            self.name,
            *([str(self.rounds)] if several_rounds else []),
            str(len(self.sizes)),
            str(high) if low == high else f"{low}–{high}",
            spoken(sum(self.train_seconds) + self.measure_seconds),
            f"{self.upload_bytes / 1e6:.1f}",
            f"{self.download_bytes / 1e6:.1f}",
            self.note,
        )


@dataclass(frozen=True)
class Estimate:
    costs: list[Cost]
    workers: int
    memory: int  # bytes of one worker

    @property
    def seconds(self) -> float:
        """The total time divided by the workers, but at least the longest time of one client."""
        total = sum(sum(cost.train_seconds) + cost.measure_seconds for cost in self.costs)
        return max(total / self.workers, max((cost.longest for cost in self.costs), default=0.0))

    def lines(self) -> list[RenderableType]:
        """A table of the trials, and the totals."""
        several = any(cost.rounds > 1 for cost in self.costs)
        rounds = ["rounds"] if several else []
        numbers = (*rounds, "clients", "images each", "core time", "MB up", "MB down")
        rows = [cost.cells(several) for cost in self.costs]
        title = f"trials: {sum(not cost.teacher for cost in self.costs)}"
        memory = self.memory * self.workers
        scarce = " (more than this machine has)" if memory > psutil.virtual_memory().total else ""
        disk = sum(cost.disk_bytes for cost in self.costs)
        return [
            plain_table(("trial", *numbers, ""), rows, numbers=numbers, title=title),
            f"time: about {spoken(self.seconds)} with {self.workers} workers",
            f"memory: about {self.memory / 1e9:.1f} GB per worker, "
            f"{memory / 1e9:.1f} GB in all{scarce}",
            f"record: about {disk / 1e6:.0f} MB",
        ]


def estimate(study: Study, record: Record, data_root: Path | None, workers: int | None) -> Estimate:
    """Times a few steps of every kind of training; finished work in `record` costs nothing."""
    record.refuse_another(study)
    plan = Plan(study, data_root, tell, remembered=record.roots())
    plan.check()
    with one_thread():  # clients train with one thread
        costs = _costs(plan.runs(record))
    return Estimate(costs, workers_for(workers), peak_memory())


def _costs(runs: list[Run]) -> list[Cost]:
    speeds: dict[str, Speed] = {}
    costs = []
    for run in runs:
        if isinstance(run, MapRun):
            continue  # drawing a map takes a minute at most
        kind = kind_of_work(run.trial)
        if kind not in speeds:
            speeds[kind] = _measure_speed(run)
        if isinstance(run, TrialRun):
            costs.append(_cost(run, speeds[kind]))
        elif isinstance(run, TeacherRun) and not run.over:
            costs.append(_cost_of_teacher(run, speeds[kind]))
    return costs


def _cost_of_teacher(run: TeacherRun, speed: Speed) -> Cost:
    """The cost of the server's own training, which sends no messages."""
    budget = run.trial.setup.budget
    seconds = [speed.training(run.images, budget) for _ in run.untrained]
    note = "an earlier trial's nets" if run.source else "trains on the public images"
    features = run.images * (speed.width * 4 + 8)
    kept = run.teachers * speed.upload_bytes + speed.briefing_bytes
    return Cost(
        name=run.folder.id,
        rounds=1,
        sizes=[run.images],
        train_seconds=seconds,
        measure_seconds=run.images * speed.forward * run.passes / FORWARD,
        upload_bytes=0,
        download_bytes=0,
        disk_bytes=features + (0 if run.source else kept),
        note=note,
        teacher=True,
    )


def _cost(run: TrialRun, speed: Speed) -> Cost:
    budget, agenda = run.trial.setup.budget, run.measuring.agenda
    sizes = dict(zip(run.clients, run.allocation.partition.label_counts.sum(axis=1), strict=True))
    waiting = [] if run.over or run.twin else [int(sizes[client]) for _, client in run.untrained()]
    asked = sum(len(one.asked) for one in run.rounds)
    # The record also holds a copy of the values of φ, and the total of all sums.
    sums = run.trial.recipe.uploads == "sums"
    fixed = speed.briefing_bytes + 8 * speed.width**2 if sums else 0
    kept = asked if run.trial.options.keep_checkpoints else len(run.rounds[-1].asked)
    return Cost(
        name=run.folder.id,
        rounds=len(run.rounds),
        sizes=[int(size) for size in sizes.values()],
        train_seconds=[
            speed.training(size, budget) + size * speed.forward * len(budget.checkpoints)
            for size in waiting
        ],
        measure_seconds=agenda.measure_work() * speed.forward / agenda.forward
        + (agenda.merge_work() + run.advance_work())
        * speed.step
        / (budget.batch * run.trial.recipe.views_per_image)
        + (speed.solving if agenda.missing() else 0.0),
        upload_bytes=speed.upload_bytes * asked,
        download_bytes=speed.briefing_bytes * asked,
        disk_bytes=speed.upload_bytes * kept + speed.briefing_bytes * len(run.rounds) + fixed,
        note="finished already" if run.over else "shares a training above" if run.twin else "",
    )


def _measure_speed(run: Run) -> Speed:
    """Times a few steps of a client of this kind, on images of the largest client."""
    allocation = run.allocation
    largest = int(allocation.partition.label_counts.sum(axis=1).argmax())
    data = allocation.part("public") if isinstance(run, TeacherRun) else allocation.client(largest)
    client = make_client(
        data.slice(0, max(run.trial.setup.budget.batch, EVAL_BATCH)),
        rehearse(_longer(run.trial), allocation),
        "0",
    )
    sent = len(rehearse(run.trial, allocation).to_bytes())
    if isinstance(client, Training):
        return _speed_of_training(client, data, sent)
    if isinstance(client, Summing):
        return _speed_of_summing(client, run.trial.setup.budget.batch, sent)
    raise TypeError(f"cannot time a {type(client).__name__}")


def _speed_of_training(client: Training, data: ImageSet, sent: int) -> Speed:
    """Times a few steps and one forward pass."""
    budget, briefing = client.budget, client.briefing
    training = Training(data.slice(0, budget.batch), briefing, "0")
    training.run_epoch()  # warm-up
    look = _step_seconds(training)
    training.looking = False
    step = _step_seconds(training)
    began = time.perf_counter()
    seen = data.slice(0, EVAL_BATCH)
    for _ in forward_all(training.net, seen, briefing.header, torch.device("cpu")):
        pass
    forward = (time.perf_counter() - began) / len(seen)
    upload = len(training.upload().to_bytes())
    width = training.net.encoder.width
    return Speed(step, max(0.0, look - step), forward, upload, sent, width)


def _speed_of_summing(client: Summing, batch: int, sent: int) -> Speed:
    """Times the encoding of some images and the summing of their features."""
    some = client.data
    client.run_epoch()  # warm-up
    began = time.perf_counter()
    features = client.features(torch.arange(len(some)))
    forward = (time.perf_counter() - began) / len(some)
    began = time.perf_counter()
    client.add(features, torch.from_numpy(some.labels))
    image = forward + (time.perf_counter() - began) / ROWS
    upload, width = len(client.upload().to_bytes()), client.map.width
    return Speed(image * batch, 0.0, forward, upload, sent, width, _solving_seconds(width))


def _solving_seconds(width: int) -> float:
    """The time to solve a ridge, from the time of a smaller Cholesky factorisation."""
    size = min(width, 1_000)
    some = torch.eye(size, dtype=torch.float64) + 0.1 / size
    began = time.perf_counter()
    torch.linalg.cholesky_ex(some)
    return FACTORS * (time.perf_counter() - began) * (width / size) ** 3


def _longer(trial: Trial) -> Trial:
    """The trial with enough epochs for all steps that are timed."""
    if not isinstance(trial.recipe, TrainingRecipe):
        return trial
    setup = trial.setup
    budget = setup.budget.model_copy(update={"epochs": max(setup.budget.epochs, 4 * STEPS)})
    return replace(trial, setup=setup.model_copy(update={"budget": budget}))


def _step_seconds(training: Training) -> float:
    """The seconds of one step: the last of a few epochs of one step each."""
    began, done = time.perf_counter(), 0
    while done < STEPS and time.perf_counter() - began < ENOUGH and not training.done:
        training.run_epoch()
        done += 1
    return float(training.telemetry[-1]["seconds"])
