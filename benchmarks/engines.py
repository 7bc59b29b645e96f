"""What each engine adds to the training of a client in a round, for small and for large messages.

A study with one client and several rounds of FedAvg runs over every engine. The time from the end
of one round to the end of the next, without the client's training, is what the engine and the
server add: sending, reading, checking, merging and measuring.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from sklearn.datasets import load_digits

from accord.core.files import read_json
from accord.federation.site import Site, keep_root
from accord.flower.guard import Guard
from accord.messages import Briefing
from accord.record.record import Record
from benchmarks.figure import Figure
from benchmarks.workspace import workspace

ROUNDS = 4
NETS = {"conv4": "0.5 MB", "resnet18": "45 MB"}  # backbone → the size of its messages
ACCORD = [sys.executable, "-m", "accord"]
Seconds = tuple[float, list[float]]  # until the end of the first round, and of each later round


def measure() -> list[Figure]:
    figures = []
    ways: dict[str, Callable[[Path, Path], Seconds]] = {
        "local": _local,
        "dask": _dask,
        "files": _files,
        "flower": _flower,
    }
    for backbone, size in NETS.items():
        for name, way in ways.items():
            with workspace() as folder:
                study = folder / "study.yaml"
                study.write_text(json.dumps(_study(backbone)))
                first, later = way(study, folder)
            said = f"{median(later):.2f} s per client and round ({first:.0f} s to the first end)"
            figures.append(Figure(f"engine {name}, messages of {size}", said))
    return figures


def _study(backbone: str) -> dict[str, Any]:
    return {
        "name": "engines",
        "data": {"name": "digits", "train_limit": 40, "test_limit": 20},
        "partition": {"scheme": "iid", "clients": 1},
        "net": {"backbone": backbone},
        "budget": {"epochs": 1, "batch": 20},
        "rounds": {"count": ROUNDS},
        "recipes": ["fedavg"],
        "references": False,
    }


def _local(study: Path, folder: Path) -> Seconds:
    return _timed(["run", str(study), "--workers", "2", "--out", str(folder / "run")], folder)


def _flower(study: Path, folder: Path) -> Seconds:
    return _timed(["flower", "local", str(study), "--out", str(folder / "run")], folder)


def _dask(study: Path, folder: Path) -> Seconds:
    with cluster(folder) as address:
        words = ["run", str(study), "--cluster", address, "--out", str(folder / "run")]
        return _timed(words, folder)


def _timed(words: list[str], folder: Path) -> Seconds:
    """Runs a command and reads the times of its rounds from their reports."""
    began = time.time()
    subprocess.run([*ACCORD, *words], check=True, capture_output=True)
    (trial,) = Record(folder / "run").trials()
    paths = [trial.round(number).report for number in range(1, ROUNDS + 1)]
    ends = [path.stat().st_mtime for path in paths]
    trained = [float(read_json(path)["seconds"]) for path in paths]
    spans = zip(ends, ends[1:], trained[1:], strict=False)
    return ends[0] - began, [end - before - training for before, end, training in spans]


def _files(study: Path, folder: Path) -> Seconds:
    """The commands of the server and of the client, as people type them one after the other."""
    digits = load_digits()
    images = folder / "images.npz"
    np.savez(images, images=(digits.images[:40] * 15.9).astype(np.uint8), labels=digits.target[:40])
    spans = []
    began = time.time()
    _accord("brief", str(study), "--out", str(folder / "b1.safetensors"))
    for number in range(1, ROUNDS + 1):
        briefing, upload = folder / f"b{number}.safetensors", folder / f"u{number}.safetensors"
        _accord("answer", str(briefing), str(images), "--name", "0", "--out", str(upload))
        following = ["--next", str(folder / f"b{number + 1}.safetensors")]
        last = ["--save", str(folder / "model")]
        _accord("fuse", str(briefing), str(upload), *(following if number < ROUNDS else last))
        training = sum(Site("0", keep_root()).seconds(Briefing.load(briefing)).values())
        spans.append(time.time() - began - training)
        began = time.time()
    return spans[0], spans[1:]


def _accord(*words: str) -> None:
    subprocess.run([*ACCORD, *words], check=True, capture_output=True)


@contextmanager
def cluster(folder: Path, workers: int = 1, *, again: bool = False) -> Iterator[str]:
    """The address of a Dask scheduler on loopback; `again`: a worker that dies starts again."""
    file, env = folder / "scheduler.json", dict(os.environ)
    with Guard() as guard:
        loopback = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0"]
        module = [sys.executable, "-m", "distributed.cli.dask_scheduler"]
        words = [*module, *loopback, "--scheduler-file", str(file)]
        guard.start(words, env, folder / "scheduler.log", folder)
        while not (file.exists() and file.read_text().endswith("}")):
            time.sleep(0.1)
        address = str(json.loads(file.read_text())["address"])
        module = [sys.executable, "-m", "distributed.cli.dask_worker"]
        local = ["--host", "127.0.0.1", "--no-dashboard", "--local-directory", str(folder)]
        nanny = "--nanny" if again else "--no-nanny"
        words = [*module, address, *local, nanny, "--nthreads", "1"]
        for number in range(workers):
            guard.start(words, env, folder / f"worker{number}.log", folder)
        yield address
