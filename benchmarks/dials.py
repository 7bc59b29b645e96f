"""The cost of a balance's telemetry, as a share of a client's training time.

The telemetry consists of the gradients of both losses on their common parameters, their norms and
cosine every `look_every` steps, and σ and λ at the end of an epoch, in the real training loop. The
benchmark also compares a step of each kind of balance with a step of `fafi`, which has none.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any
from unittest import mock

from accord.balance import mixture
from accord.balance.gradients import Gradients
from accord.client.training import Training
from accord.core.threads import one_thread
from accord.data.allocation import open_allocation
from accord.messages import Briefing
from benchmarks.figure import Figure
from benchmarks.turns import ratio
from benchmarks.workspace import random_images, ready_trial, workspace

TARGET = 0.03
BATCH, STEPS, ROUNDS = 128, 20, 3
RECIPES = ("etf-fixed", "etf-stabilised", "etf-gradnorm", "etf-upgrad")
Clock = dict[str, float]


def measure() -> list[Figure]:
    """Measures epochs of every recipe in turns, in CPU time of one thread."""
    with workspace() as folder, one_thread():
        clients = {recipe: _client(recipe, folder) for recipe in ("fafi", *RECIPES)}
        seconds: dict[str, list[float]] = {recipe: [] for recipe in clients}
        shares = []
        for _ in range(ROUNDS):
            for recipe, client in clients.items():
                with _watching() as looked:
                    began = time.process_time()
                    client.run_epoch()
                    seconds[recipe].append(time.process_time() - began)
                if recipe == "etf-stabilised":
                    shares.append(looked["seconds"] / seconds[recipe][-1])
    share = median(shares)
    looked_at = f"telemetry of etf-stabilised, resnet10, {BATCH} × 2 views, a look every 20 steps"
    return [
        Figure(looked_at, f"{share:.2%} of a step", f"≤ {TARGET:.0%}", share <= TARGET),
        *(
            Figure(f"  step of {recipe} against fafi", f"{ratio(seconds, recipe):.3f} ×")
            for recipe in RECIPES
        ),
    ]


@contextmanager
def _watching() -> Iterator[Clock]:
    """Measures the time of the gradient measurements and dials; the training is unchanged."""
    spent: Clock = {"seconds": 0.0}

    def timed(work: Callable[..., Any]) -> Callable[..., Any]:
        def run(*args: Any) -> Any:
            began = time.process_time()
            try:
                return work(*args)
            finally:
                spent["seconds"] += time.process_time() - began

        return run

    with ExitStack() as patches:
        for owner, name in (
            (mixture, "shared_gradients"),
            (Gradients, "summary"),
            (mixture.Mixture, "dials"),
        ):
            patches.enter_context(mock.patch.object(owner, name, timed(getattr(owner, name))))
        yield spent


def _client(recipe: str, folder: Path) -> Training:
    own = folder / recipe
    own.mkdir()
    study = {
        "name": recipe,
        "data": {**random_images(own, train=BATCH * STEPS, test=10), "augment": "reference"},
        "partition": {"scheme": "iid", "clients": 1},
        "net": {"backbone": "resnet10"},
        "budget": {"epochs": 1_000, "batch": BATCH},
        "recipes": recipe,
        "references": False,
    }
    run = ready_trial(study, own / "record")
    allocation = open_allocation(run.allocation_path)
    return Training(allocation.client(0), Briefing.load(run.folder.briefing), "0")
