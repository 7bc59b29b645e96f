"""What a study will cost, from a few real steps of each kind of training: `--dry-run`."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from rich.console import Console

from accord.client import Training
from accord.data.deal import Deal
from accord.engines.jobs import peak_memory
from accord.moments import EVAL_BATCH, forward_all
from accord.progress import spoken
from accord.runner import Plan, training_key, trial_id, workers_for
from accord.server import brief
from accord.study import Study, Trial
from accord.tables import plain_table

STEPS = 3  # timed, after one that warms up
ENOUGH = 5.0  # seconds after which fewer steps will do


@dataclass(frozen=True)
class Speed:
    """One kind of training on one core."""

    step: float  # seconds
    forward: float  # seconds per image
    upload_bytes: int
    briefing_bytes: int


@dataclass(frozen=True)
class Cost:
    """One trial."""

    name: str
    clients: int
    smallest: int
    largest: int
    train_seconds: list[float]  # per client, on one core; empty when another trial's are reused
    measure_seconds: float
    upload_bytes: int
    download_bytes: int


@dataclass(frozen=True)
class Estimate:
    costs: list[Cost]
    workers: int
    memory: int  # of one worker

    @property
    def seconds(self) -> float:
        """The sum shared by all workers, but never less than the longest client."""
        training = [seconds for cost in self.costs for seconds in cost.train_seconds]
        total = sum(training) + sum(cost.measure_seconds for cost in self.costs)
        return max(total / self.workers, max(training, default=0.0))

    def show(self, console: Console) -> None:
        rows = [
            (
                cost.name,
                str(cost.clients),
                f"{cost.smallest}–{cost.largest}",
                spoken(sum(cost.train_seconds) + cost.measure_seconds),
                f"{cost.upload_bytes / 1e6:.1f}",
                f"{cost.download_bytes / 1e6:.1f}",
                "" if cost.train_seconds else "shares a training above",
            )
            for cost in self.costs
        ]
        numbers = ("clients", "images each", "core time", "MB up", "MB down")
        table = plain_table(
            ("trial", *numbers, ""), rows, numbers=numbers, title=f"{len(rows)} trials"
        )
        console.print(table)
        disk = sum(cost.upload_bytes for cost in self.costs)
        lines = (
            f"time: about {spoken(self.seconds)} with {self.workers} workers",
            f"memory: about {self.memory / 1e9:.1f} GB per worker, "
            f"{self.memory * self.workers / 1e9:.1f} GB in all",
            f"record: about {disk / 1e6:.0f} MB",
        )
        for line in lines:
            console.print(line, highlight=False)


def estimate(study: Study, data_root: Path | None, workers: int | None) -> Estimate:
    """Times a few steps of every kind of training in the study; trains and writes nothing."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as a client trains
    try:
        costs = list(
            _costs(study, Plan(study, data_root, lambda line: print(line, file=sys.stderr)))
        )
    finally:
        torch.set_num_threads(threads)
    return Estimate(costs, workers_for(workers), peak_memory())


def _costs(study: Study, plan: Plan) -> list[Cost]:
    speeds: dict[str, Speed] = {}
    seen: set[str] = set()
    costs = []
    for trial in study.trials():
        key, deal = plan.deal(trial)
        training = training_key(trial, key)
        kind = f"{trial.setup.net} {trial.setup.budget} {trial.recipe.training} {deal.classes}"
        if kind not in speeds:
            speeds[kind] = _measure(trial, deal)
        costs.append(_cost(trial, deal, speeds[kind], training, reused=training in seen))
        seen.add(training)
    return costs


def _cost(trial: Trial, deal: Deal, speed: Speed, training: str, reused: bool) -> Cost:
    budget = trial.setup.budget
    sizes = [int(counts.sum()) for counts in deal.partition.label_counts]
    steps = [-(-size // budget.batch) * budget.epochs for size in sizes]
    measured = (len(deal.part("test")) + len(deal.part("validation"))) * len(sizes)
    own = [size * speed.forward * len(budget.checkpoints) for size in sizes]
    return Cost(
        name=trial_id(trial, training),
        clients=len(sizes),
        smallest=min(sizes),
        largest=max(sizes),
        train_seconds=[]
        if reused
        else [n * speed.step + extra for n, extra in zip(steps, own, strict=True)],
        measure_seconds=measured * speed.forward * len(budget.checkpoints),
        upload_bytes=speed.upload_bytes * len(sizes),
        download_bytes=speed.briefing_bytes * len(sizes),
    )


def _measure(trial: Trial, deal: Deal) -> Speed:
    """A few steps on the images of the largest client, and one forward pass."""
    briefing = brief(trial, deal)
    largest = int(deal.partition.label_counts.sum(axis=1).argmax())
    data = deal.client(largest)
    few = data.slice(0, trial.setup.budget.batch)
    training = Training(few, briefing, "0")
    training.run_epoch()  # warms up
    began, done = time.perf_counter(), 0
    while done < STEPS and time.perf_counter() - began < ENOUGH and not training.done:
        training.run_epoch()
        done += 1
    step = training.telemetry[-1]["seconds"]
    began = time.perf_counter()
    seen = data.slice(0, EVAL_BATCH)
    for _ in forward_all(training.net, seen, briefing.header, torch.device("cpu")):
        pass
    forward = (time.perf_counter() - began) / len(seen)
    upload = len(training.upload().to_bytes())
    return Speed(step, forward, upload, len(briefing.to_bytes()))
