"""The cost of a public bank: a step with 4,096 rows compared with one without, and memory.

The memory is that of the contrast of 512 × 2 views with 65,536 rows at d = 512, for the forward and
the backward pass, without its inputs, measured in a separate process.
"""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

from accord.client.training import Training
from accord.core.threads import one_thread
from accord.federation.briefing import rehearse
from benchmarks.figure import Figure
from benchmarks.turns import ratio
from benchmarks.workspace import random_images, ready_trial, workspace

BATCH, STEPS, ROUNDS, PUBLIC = 128, 10, 5, 4096
TARGET, MEMORY = 0.10, 1e9
RECIPES = ("public-negatives", "reference-mmd", "reference-coral")


def measure() -> list[Figure]:
    """Measures epochs of every recipe in turns, in CPU time of one thread."""
    with workspace() as folder, one_thread():
        clients = {recipe: _client(recipe, folder) for recipe in ("fafi", *RECIPES)}
        seconds: dict[str, list[float]] = {recipe: [] for recipe in clients}
        for client in clients.values():
            client.run_epoch()  # warm-up
        for _ in range(ROUNDS):
            for recipe, client in clients.items():
                began = time.process_time()
                client.run_epoch()
                seconds[recipe].append(time.process_time() - began)
    more = {recipe: ratio(seconds, recipe) - 1 for recipe in RECIPES}
    size = f"{PUBLIC:,} rows, resnet10, {BATCH} × 2 views"
    held = _memory(OURS)
    return [
        Figure(
            f"bank of {size}, beyond fafi",
            f"{more['public-negatives']:+.1%} of a step",
            f"≤ {TARGET:.0%}",
            more["public-negatives"] <= TARGET,
        ),
        *(Figure(f"  {name}, beyond fafi", f"{more[name]:+.1%} of a step") for name in RECIPES[1:]),
        Figure(
            "memory of the contrast, 1,024 × 65,536 rows, d 512",
            f"{held / 1e6:,.0f} MB",
            f"≤ {MEMORY / 1e6:,.0f} MB",
            held <= MEMORY,
        ),
        Figure("  the same by pytorch-metric-learning", f"{_memory(THEIRS) / 1e6:,.0f} MB"),
    ]


def _client(recipe: str, folder: Path) -> Training:
    """A client with `STEPS` batches of images and a bank of random features."""
    own = folder / recipe
    own.mkdir()
    images = BATCH * STEPS
    public = PUBLIC / (images + PUBLIC)
    study = {
        "name": recipe,
        "data": {
            **random_images(own, train=images + PUBLIC, test=10),
            "augment": "reference",
            "public": public,
        },
        "partition": {"scheme": "iid", "clients": 1},
        "net": {"backbone": "resnet10"},
        # The benchmark `dials` measures the cost of gradient measurements.
        "budget": {"epochs": 1_000, "batch": BATCH, "look_every": 1_000_000},
        "recipes": recipe,
        "references": False,
    }
    run = ready_trial(study, own / "record")
    client = Training(run.allocation.client(0), rehearse(run.trial, run.allocation), "0")
    client.looking = False
    return client


# getrusage is not used, because its peak would start at that of the parent process.
CONTRAST = """
import torch
from pathlib import Path
from accord.objective import Batch
from accord.objective.contrast import Contrast
from accord.objective.negatives import Rows

def peak():
    line = next(s for s in Path("/proc/self/status").open() if s.startswith("VmHWM"))
    return 1024 * int(line.split()[1])

torch.set_num_threads(1)
features = torch.randn(1024, 512, requires_grad=True)
labels = torch.randint(10, (1024,))
bank = Rows(torch.randn(65_536, 512).div_(512**0.5), torch.randint(10, (65_536,)))
LOSS
before = peak()
loss().backward()
print(peak() - before)
"""


OURS = """
P = torch.randn(10, 512)
batch = Batch(features, features @ P.T, labels, P, torch.ones(10), bank=bank)
loss = lambda: Contrast(bank="others")(batch)
"""
THEIRS = """
from pytorch_metric_learning.losses import SupConLoss
loss = lambda: SupConLoss(0.07)(features, labels, ref_emb=bank.features, ref_labels=bank.labels)
"""


def _memory(loss: str) -> int:
    """The bytes that a loss needs besides its inputs; `loss` is its definition."""
    program = CONTRAST.replace("LOSS", loss)
    command = [sys.executable, "-c", program]
    return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
