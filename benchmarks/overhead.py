"""The share of a client's time outside forward, loss, backward and optimiser step.

It is the time of augmentation, batching, telemetry, checkpoints and the upload with its statistics,
in the real task of a worker. Hooks measure the time of the net.
"""

from __future__ import annotations

import time
from collections import defaultdict
from functools import partial
from statistics import median
from typing import Any
from unittest import mock

from torch import Tensor

from accord.client import make
from accord.client.training import Training
from accord.federation.tasks import perform
from accord.messages import Upload
from accord.objective import Batch
from benchmarks.figure import Figure
from benchmarks.workspace import random_images, ready_trial, workspace

TARGET = 0.10
IMAGES, EPOCHS, CHECKPOINTS = 2_000, 5, (5,)
REPEATS = 3
Spent = defaultdict[str, float]  # kind of work → seconds


class Watched(Training):
    """A `Training` that measures the time of its parts; the training itself is unchanged."""

    def __init__(self, spent: Spent, *args: Any) -> None:
        super().__init__(*args)
        self.make_batch = self.inputs.batch
        self.inputs.batch = self._watched_batch  # type: ignore[assignment]
        self.spent = spent
        self.mark = 0.0
        encoder = self.net.encoder
        encoder.register_forward_pre_hook(lambda *_: self._begin())
        encoder.register_forward_hook(lambda net, *_: self._end("net") if net.training else None)
        self.finish = self.optimiser.finish
        self.optimiser.finish = self._watched_step  # type: ignore[method-assign]

    def _begin(self) -> None:
        self.mark = time.perf_counter()

    def _end(self, kind: str) -> None:
        self.spent[kind] += time.perf_counter() - self.mark

    def _watched_step(self) -> Tensor:
        clipped = self.finish()
        self._end("net")
        return clipped

    def _watched_batch(self, *given: Any) -> Batch:
        before, began = self.spent["net"], time.perf_counter()
        batch = self.make_batch(*given)
        inside = self.spent["net"] - before
        self.spent["views and batching"] += time.perf_counter() - began - inside
        self._begin()  # start of loss, backward, clipping and step, which follow
        return batch

    def upload(self) -> Upload:
        began = time.perf_counter()
        upload = super().upload()
        self.spent["moments of the upload"] += time.perf_counter() - began
        return upload


def measure() -> list[Figure]:
    found = [_one_client() for _ in range(REPEATS)]
    outside = median(1 - spent["net"] / spent["all"] for spent in found)
    figures = [
        Figure(
            f"client outside the net, resnet10, {IMAGES:,} images, {EPOCHS} epochs",
            f"{outside:.1%} of its time",
            f"≤ {TARGET:.0%}",
            outside <= TARGET,
        )
    ]
    for kind in ("views and batching", "moments of the upload"):
        share = median(spent[kind] / spent["all"] for spent in found)
        figures.append(Figure(f"  of which {kind}", f"{share:.1%}"))
    return figures


def _one_client() -> Spent:
    """Kind of work → seconds; `all` is the wall time of the whole job."""
    spent: Spent = defaultdict(float)
    with workspace() as folder, mock.patch.object(make, "Training", partial(Watched, spent)):
        study = {
            "name": "overhead",
            "data": {**random_images(folder, train=IMAGES, test=10), "augment": "reference"},
            "partition": {"scheme": "iid", "clients": 1},
            "net": {"backbone": "resnet10"},
            "budget": {"epochs": EPOCHS, "checkpoints": list(CHECKPOINTS)},
            "recipes": "fafi",
            "references": False,
        }
        run = ready_trial(study, folder / "record")
        began = time.perf_counter()
        perform(run.ready[0].task, run.record, lambda _: None)
        spent["all"] = time.perf_counter() - began
    return spent
