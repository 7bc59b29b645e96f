"""The peak memory of a whole study: does it grow with the number of clients?

It is the memory of the main process and the workers. Every client has the same number of images, so
that only the number of clients changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from benchmarks.figure import Figure
from benchmarks.workspace import random_images, ready_trial, workspace

TARGET = 1.3
FEW, MANY, EACH = 5, 100, 128  # clients, clients, and images per client (one full batch)
TINY, TINY_EACH, TINY_TEST = 1_000, 2, 50  # every client's net is measured on every test image
TEST = 256  # one full batch of a net that is measured
LOOK_EVERY = 0.05  # seconds between two measurements
RUN = (
    "import accord, json, sys; study, out = sys.argv[1:]; "
    "assert not accord.run(json.loads(study), out=out, quiet=True).failures"
)


@dataclass(frozen=True)
class Peak:
    """`bytes` is the peak memory of all processes together; shared pages count for each."""

    bytes: int
    processes: int
    seconds: float

    def __str__(self) -> str:
        return f"{self.bytes / 1e6:,.0f} MB"


def measure() -> list[Figure]:
    with workspace() as folder:
        data = {**random_images(folder, train=MANY * EACH, test=TEST), "augment": "reference"}
        ready_trial(_study("decode", data, 1, EACH, "conv4"), folder / "decode")  # fills the cache
        few = _peak(_study("few", data, FEW, EACH, "resnet10"), folder)
        many = _peak(_study("many", data, MANY, EACH, "resnet10"), folder)
        seen = {**data, "test_limit": TINY_TEST}
        tiny = _peak(_study("tiny", seen, TINY, TINY_EACH, "conv4"), folder)
    ratio = many.bytes / few.bytes
    return [
        Figure(
            f"memory, resnet10, {MANY} clients against {FEW}",
            f"{ratio:.2f} × ({many} against {few} in {few.processes} processes)",
            f"≤ {TARGET} ×",
            ratio <= TARGET,
        ),
        Figure(
            f"memory, conv4, {TINY:,} clients of {TINY_EACH} images",
            f"{tiny} in {tiny.seconds:.0f} s",
        ),
    ]


def _study(
    name: str, data: dict[str, Any], clients: int, each: int, backbone: str
) -> dict[str, Any]:
    return {
        "name": name,
        "data": {**data, "train_limit": clients * each},
        "partition": {"scheme": "iid", "clients": clients},
        "net": {"backbone": backbone},
        "budget": {"epochs": 1},
        "recipes": "fafi",
        "fusions": ["outputs", "classwise", "average", "split"],  # besides that of fafi
        "references": False,  # the pooled reference is one client with all images
    }


def _peak(study: dict[str, Any], folder: Path) -> Peak:
    """Runs `study` in a separate process and measures the memory of it and its workers."""
    began = time.monotonic()
    arguments = [json.dumps(study), str(folder / study["name"])]
    process = subprocess.Popen([sys.executable, "-c", RUN, *arguments])
    most, processes = 0, 0
    while process.poll() is None:
        sizes = _sizes(process.pid)
        most, processes = max(most, sum(sizes)), max(processes, len(sizes))
        time.sleep(LOOK_EVERY)
    if process.returncode:
        raise RuntimeError(f"the study {study['name']!r} failed; see above")
    return Peak(most, processes, time.monotonic() - began)


def _sizes(pid: int) -> list[int]:
    """The resident bytes of a process and of all its child processes."""
    sizes = []
    try:
        parent = psutil.Process(pid)
        for process in (parent, *parent.children(recursive=True)):
            sizes.append(process.memory_info().rss)
    except psutil.NoSuchProcess:
        pass  # the process ended during the measurement
    return sizes
