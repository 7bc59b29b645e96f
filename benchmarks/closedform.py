"""The cost of the closed form: the time of features by operation, and solving at the largest d."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from accord.client.summing import ROWS, sums_of
from accord.closed_form.ridge import solve
from accord.closed_form.sums import Sums
from accord.core.randomness import torch_generator
from accord.core.threads import one_thread
from accord.engines.pool import GREEDY
from accord.federation.tasks.base import peak_memory
from accord.nets.maps.base import Around
from accord.nets.maps.feature_map import FeatureMap, MapConfig, made_up
from accord.nets.settings import NetConfig
from accord.study.recipe import ClosedFormRecipe
from accord.study.resolve import resolve
from benchmarks.figure import Figure
from benchmarks.workspace import CHANNELS, CLASSES, SIZE

RECIPES = ("closed-form", "closed-form-public", "closed-form-teacher")
PRODUCTS = ("mm", "addmm", "bmm", "baddbmm", "mkldnn_convolution", "convolution")
SHARE = 0.8  # share of the time in matrix products and convolutions
WIDTH, IMAGES, SECONDS, BYTES = 4_700, 45_000, 60, 2e9


def measure() -> list[Figure]:
    features = [Figure(**_asked("features", recipe)) for recipe in RECIPES]
    solving = _asked("solve")
    what = f"ridge at d = {WIDTH:,}, λ by cross-validation"
    seconds, held = solving["seconds"], solving["bytes"]
    return [
        *features,
        Figure(what, f"{seconds:.0f} s", f"≤ {SECONDS} s", seconds <= SECONDS),
        Figure(
            f"memory of it, S ({8 * WIDTH**2 / 1e6:.0f} MB) included",
            f"{held / 1e6:,.0f} MB",
            f"≤ {BYTES / 1e6:,.0f} MB",
            held <= BYTES,
        ),
    ]


def _asked(*words: str) -> Any:
    """The result of this module in a separate process with the memory settings of a worker."""
    process = subprocess.run(
        [sys.executable, "-m", "benchmarks.closedform", *words],
        check=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # the profiler prints messages
        text=True,
        env={**GREEDY, **os.environ},
    )
    return json.loads(process.stdout)


def _features(recipe: str) -> Figure:
    """Measures the features φ of noise and their sums, as a client computes them."""
    resolved = resolve(recipe, Path())
    if not isinstance(resolved, ClosedFormRecipe):
        raise TypeError(f"{recipe} is no closed form")
    config = resolved.map.settled(Around(NetConfig(), SIZE), flips=True)
    with one_thread(), torch.inference_mode():
        images = torch.randn(ROWS, CHANNELS, SIZE, SIZE, generator=torch_generator(0, "benchmark"))
        found = _map(config)
        _sum(found, images[:64])
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            _sum(found, images)
    times = {event.key: event.self_cpu_time_total for event in seen.key_averages()}
    total = sum(times.values())
    share = sum(times.get(f"aten::{name}", 0) for name in PRODUCTS) / total
    each = total / ROWS / 1e3
    return Figure(
        f"features and sums of {recipe}",
        f"{share:.0%} of the time in products ({each:.1f} ms an image, one thread)",
        f"≥ {SHARE:.0%}",
        share >= SHARE,
    )


def _map(config: MapConfig) -> FeatureMap:
    """A map with small random values; with zeros, exp and relu would take another time."""
    draws = torch_generator(0, "benchmark", "map")
    found = FeatureMap(config, CHANNELS).eval()
    shapes = made_up(config, CHANNELS)
    found.load_state_dict({name: _like(tensor, draws) for name, tensor in shapes.items()})
    return found


def _like(tensor: torch.Tensor, draws: torch.Generator) -> torch.Tensor:
    if not tensor.is_floating_point():
        return tensor
    return torch.rand(tensor.shape, generator=draws) * 0.1


def _sum(found: FeatureMap, images: torch.Tensor) -> None:
    features = torch.cat([found(some) for some in torch.split(images, 64)])
    sums_of(features, torch.arange(len(images)) % CLASSES, CLASSES)


# --- solving -----------------------------------------------------------------------------------


def _solve() -> dict[str, float]:
    """The seconds of one solution, and the peak memory of this process."""
    sums = _sums()
    began = time.perf_counter()
    with one_thread():  # as in a worker process
        solve(sums)
    return {"seconds": time.perf_counter() - began, "bytes": peak_memory()}


def _sums() -> Sums:
    """Sums of random features with falling variances, as those of a kernel, and close classes."""
    draws = torch_generator(0, "benchmark", "sums")
    lengths = torch.logspace(0, -3, WIDTH, dtype=torch.float64)
    mixed = torch.randn(WIDTH, WIDTH, generator=draws, dtype=torch.float64) * lengths
    counts = torch.full((CLASSES,), IMAGES // CLASSES)
    means = 0.3 * torch.randn(CLASSES, WIDTH, generator=draws, dtype=torch.float64)
    apart = means - means.mean(dim=0)
    within, between = mixed @ mixed.T * IMAGES / WIDTH, apart.T @ (counts[:, None] * apart)
    return Sums(counts, counts[:, None] * means, within + between)


if __name__ == "__main__":
    print(json.dumps(_solve() if sys.argv[1] == "solve" else asdict(_features(sys.argv[2]))))
