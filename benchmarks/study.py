"""The share of the cores' time that a whole study uses, from its start to its end.

The study is the one on which Accord was compared with FAFI's published code: ResNet-18, two clients
of 1,024 images, one epoch, 2,000 test images.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.figure import Figure
from benchmarks.workspace import random_images, workspace

TARGET = 0.90
CLIENTS, EACH, TEST = 2, 1_024, 2_000


def measure() -> list[Figure]:
    with workspace() as folder:
        study = {
            "name": "study",
            "data": {
                **random_images(folder, train=CLIENTS * EACH, test=TEST),
                "augment": "reference",
            },
            "partition": {"scheme": "iid", "clients": CLIENTS},
            "net": {"backbone": "resnet18"},
            "budget": {"epochs": 1},
            "recipes": ["fafi"],
            "references": False,
        }
        path = folder / "study.yaml"
        path.write_text(json.dumps(study))
        wall, work = _run(path, folder / "record")
        seconds = _seconds_of_clients(folder / "record")
    cores = len(os.sched_getaffinity(0))
    share = work / (wall * cores)
    return [
        Figure(
            f"resnet18, {CLIENTS} × {EACH:,} images, one epoch, {TEST:,} test images",
            f"{share:.0%} of the cores' time at work ({wall:.0f} s, {work:.0f} s of CPU time)",
            f"≥ {TARGET:.0%}",
            share >= TARGET,
        ),
        Figure("  of which training steps", f"{seconds / work:.0%}"),
    ]


def _run(study: Path, out: Path) -> tuple[float, float]:
    """The wall time, and the CPU time of all processes with the workers."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    words = ["run", str(study), "--out", str(out), "--quiet"]
    subprocess.run(
        [sys.executable, "-m", "accord.cli", *words], stdout=subprocess.DEVNULL, check=True
    )
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)


def _seconds_of_clients(record: Path) -> float:
    events = [*record.glob("trials/*/events.jsonl")]
    lines = [line for path in events for line in path.read_text().splitlines()]
    return sum(float(json.loads(line)["seconds"]) for line in lines)
