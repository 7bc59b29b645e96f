"""The share of matrix products in a client's training for public-turns, by operation."""

from __future__ import annotations

from torch.profiler import ProfilerActivity, profile

from accord.client.training import Training
from accord.core.threads import one_thread
from accord.data.allocation import open_allocation
from accord.messages import Briefing
from benchmarks.figure import Figure
from benchmarks.workspace import random_images, ready_trial, workspace

BACKBONES = ("white7", "white7-wide")
PRODUCTS = ("mkldnn_convolution", "convolution_backward", "mm", "addmm")
BATCH, STEPS = 128, 10
SHARE = 0.75


def measure() -> list[Figure]:
    return [_share(backbone) for backbone in BACKBONES]


def _share(backbone: str) -> Figure:
    """Profiles an epoch of the training, with one thread as in a worker."""
    with workspace() as folder:
        study = {
            "name": backbone,
            "data": {**random_images(folder, train=BATCH * STEPS, test=10), "augment": "holes"},
            "partition": {"scheme": "iid", "clients": 1},
            "net": {"backbone": backbone},
            "budget": {"epochs": 10, "batch": BATCH, "clip": None, "muon": 0.07},
            # The loss and the optimiser of public-turns, without its teacher.
            "recipes": [
                {
                    "use": "ce-ensemble",
                    "objective": {"cross-entropy": {"smoothing": 0.1, "adjusted": True}},
                    "as": "visit",
                }
            ],
            "references": False,
        }
        run = ready_trial(study, folder / "record")
        images = open_allocation(run.allocation_path).client(0)
        training = Training(images, Briefing.load(run.folder.briefing), "0")
        with one_thread():
            training.run_epoch()
            with profile(activities=[ProfilerActivity.CPU]) as seen:
                training.run_epoch()
    times = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
    share = sum(times.get(f"aten::{name}", 0) for name in PRODUCTS) / sum(times.values())
    speed = BATCH * STEPS / (sum(times.values()) / 1e6)
    return Figure(
        f"training of public-turns, {backbone}",
        f"{share:.0%} of the time in products ({speed:.0f} images/s, one thread)",
        f"≥ {SHARE:.0%}",
        share >= SHARE,
    )
