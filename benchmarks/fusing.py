"""The cost of fusing: all fusions that use the clients' features together, and one of them."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np

from accord.client.training import Training
from accord.core.randomness import numpy_generator
from accord.core.threads import one_thread
from accord.data.imageset import ImageSet
from accord.fusion.base import Vote, fusions
from accord.fusion.evaluate import measure_block
from accord.fusion.uploads import UploadFiles
from accord.messages import Briefing
from benchmarks.figure import Figure
from benchmarks.turns import ratio
from benchmarks.workspace import random_images, ready_trial, workspace

CLIENTS, IMAGES, ROUNDS, TARGET = 5, 10_000, 3, 1.2
VOTES = {name: {"use": name} for name in fusions.names() if issubclass(fusions.get(name), Vote)}


def measure() -> list[Figure]:
    """Measures blocks of all test images in turns, in CPU time of one thread."""
    with workspace() as folder, one_thread():
        files, images = _uploads(folder), _test_images()
        seconds: dict[str, list[float]] = {"one": [], "all": []}
        for _ in range(ROUNDS):
            for name, votes in (("one", {"outputs": VOTES["outputs"]}), ("all", VOTES)):
                began = time.process_time()
                measure_block(images, files, votes, {}, "cpu", lambda share: None)  # noqa: ARG005
                seconds[name].append(time.process_time() - began)
    found = ratio(seconds, "all", "one")
    what = f"{len(VOTES)} fusions at once, {CLIENTS} resnet10 clients, {IMAGES:,} images"
    return [Figure(what, f"{found:.2f} × one of them", f"≤ {TARGET} ×", found <= TARGET)]


def _uploads(folder: Path) -> UploadFiles:
    """The uploads of clients that have trained one step each."""
    study: dict[str, Any] = {
        "name": "fusing",
        "data": random_images(folder, train=CLIENTS * 64, test=10),
        "partition": {"scheme": "iid", "clients": CLIENTS},
        "net": {"backbone": "resnet10"},
        "budget": {"epochs": 1, "batch": 64},
        "recipes": "fafi",
        "references": False,
    }
    run = ready_trial(study, folder / "record")
    briefing = Briefing.load(run.folder.briefing)
    paths = []
    for index, client in enumerate(run.clients):
        training = Training(run.allocation.client(index), briefing, client)
        training.run_epoch()
        paths.append(run.folder.round(1).upload(client, 1, last=True))
        training.upload().save(paths[-1])
    return UploadFiles(paths, briefing)


def _test_images() -> ImageSet:
    draws = numpy_generator(0, "benchmark", "test")
    pixels = draws.integers(256, size=(IMAGES, 32, 32, 3), dtype=np.uint8)
    return ImageSet(pixels, np.arange(IMAGES), np.arange(IMAGES) % 10)
