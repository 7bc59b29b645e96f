"""The arithmetic speed of a training step, compared with that of plain matrix products.

The step is the real one: recipe `fafi` with augmentation, loss, clipping and optimiser. Both run on
all cores in turns, so that other programs and changes of the clock rate affect both equally.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch

from accord.client.training import Training
from accord.core.randomness import torch_generator
from accord.data.allocation import open_allocation
from accord.messages import Briefing
from accord.nets.backbones.base import build_encoder
from benchmarks.crew import Crew, Task, crew
from benchmarks.figure import Figure
from benchmarks.flops import training_flops
from benchmarks.workspace import CHANNELS, SIZE, random_images, ready_trial, workspace

TARGETS = {"resnet10": 0.45, "resnet18": 0.75}
BATCH, VIEWS = 128, 2
MATRIX = 1024  # rows and columns; from 512 to 4096 the speed of a product changes by 6 %
ROUNDS, SECONDS = 5, 3.0  # a task that takes longer is done once per round


@dataclass(frozen=True)
class Measured:
    """The result of one backbone over all rounds."""

    share: float  # share of the peak
    images: float  # images per second on all cores


def measure() -> list[Figure]:
    with workspace() as folder:
        trials = {name: _trial(name, folder) for name in TARGETS}
        with crew(partial(_tasks, trials)) as workers:
            peak, found = _rounds(workers)
            cores = len(workers)
    return [
        Figure("sgemm peak", f"{peak / 1e9:.0f} GFLOP/s on {cores} cores"),
        *(
            Figure(
                f"step, {name}, {BATCH} × {VIEWS} views",
                f"{one.share:.0%} of the peak ({one.images:.0f} images/s)",
                f"≥ {TARGETS[name]:.0%}",
                one.share >= TARGETS[name],
            )
            for name, one in found.items()
        ),
    ]


def _rounds(workers: Crew) -> tuple[float, dict[str, Measured]]:
    """The peak, and the median of each backbone; a step is compared with the peaks around it."""
    peaks = [workers.rate("sgemm", SECONDS)]
    shares: dict[str, list[float]] = {name: [] for name in TARGETS}
    images: dict[str, list[float]] = {name: [] for name in TARGETS}
    flops = {name: _flops_per_image(name) for name in TARGETS}
    for _ in range(ROUNDS):
        for name in TARGETS:
            speed = workers.rate(name, SECONDS)
            peaks.append(workers.rate("sgemm", SECONDS))
            shares[name].append(speed * flops[name] / ((peaks[-2] + peaks[-1]) / 2))
            images[name].append(speed)
    found = {name: Measured(median(shares[name]), median(images[name])) for name in TARGETS}
    return median(peaks), found


def _flops_per_image(backbone: str) -> int:
    image = torch.zeros(1, CHANNELS, SIZE, SIZE)
    return VIEWS * training_flops(build_encoder(backbone, CHANNELS, "batch"), image)


def _trial(backbone: str, folder: Path) -> tuple[Path, Path]:
    """The paths of the briefing and the allocation of a study with one batch of images."""
    own = folder / backbone
    own.mkdir()
    study = {
        "name": backbone,
        "data": {**random_images(own, train=BATCH, test=10), "augment": "reference"},
        "partition": {"scheme": "iid", "clients": 1},
        "net": {"backbone": backbone},
        "budget": {"epochs": 1_000_000, "batch": BATCH},
        "recipes": "fafi",
        "references": False,
    }
    run = ready_trial(study, own / "record")
    return run.folder.briefing, run.allocation_path


def _tasks(trials: dict[str, tuple[Path, Path]]) -> dict[str, Task]:
    """The tasks of each process: a matrix product and a step of each backbone."""
    return {"sgemm": _sgemm()} | {name: _step(*paths) for name, paths in trials.items()}


def _sgemm() -> Task:
    left, right = torch.rand(2, MATRIX, MATRIX, generator=torch_generator(0, "benchmark"))
    out = torch.empty(MATRIX, MATRIX)

    def product() -> float:
        torch.mm(left, right, out=out)
        return 2.0 * MATRIX**3

    return product


def _step(briefing: Path, allocation: Path) -> Task:
    training = Training(open_allocation(allocation).client(0), Briefing.load(briefing), "0")

    def epoch_of_one_step() -> float:
        training.run_epoch()
        return float(BATCH)

    return epoch_of_one_step
