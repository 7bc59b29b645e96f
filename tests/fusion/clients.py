"""Clients that know something, made without training: their uploads as files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from accord.client.statistics import measure_client
from accord.core.randomness import numpy_generator, torch_generator
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.messages import (
    NET,
    Briefing,
    BriefingHeader,
    NetHeader,
    Upload,
    UploadHeader,
    prefixed,
)
from accord.nets.net import fresh_net

CPU = torch.device("cpu")
CLASSES = 3


def images_of(labels: Sequence[int], *name: object) -> ImageSet:
    """Noise whose brightness tells the class, 8×8 in three colours."""
    draws = numpy_generator(0, "images", *name)
    noise = draws.integers(0, 120, (len(labels), 8, 8, 3))
    pixels = (noise + 60 * np.array(labels)[:, None, None, None]).astype(np.uint8)
    return ImageSet(pixels, np.arange(len(labels)), np.array(labels, dtype=np.int64))


TEST = images_of([0, 1, 2] * 3, "test")


def briefing_of(seed: int = 0) -> Briefing:
    header = BriefingHeader(
        seed=seed,
        height=8,
        width=8,
        channels=3,
        classes=("dark", "grey", "bright"),
        mean=(0.5, 0.5, 0.5),
        std=(0.25, 0.25, 0.25),
        augment="none",
        net=NetHeader(backbone="conv4", norm="batch", head="prototypes"),
        training={},
        budget={"epochs": 1},
    )
    net = fresh_net(header.net, 3, CLASSES, torch_generator(seed, "net"))
    return Briefing(header, prefixed(NET, net.state_dict()))


BRIEFING = briefing_of()
KNOWN = images_of([0, 1, 2] * 4, "known")
KNOWN_ROWS = torch.arange(len(KNOWN))


def upload_of(client: str, data: ImageSet, briefing: Briefing = BRIEFING) -> Upload:
    """As a client would make it: a net with weights, statistics and prototypes of its own."""
    header = briefing.header
    net = fresh_net(header.net, 3, CLASSES, torch_generator(0, client, "net"))
    with torch.no_grad():
        net.train()(torch.randn(16, 3, 8, 8, generator=torch_generator(0, client, "statistics")))
        features, _ = net.eval()(normalise(KNOWN.batch(KNOWN_ROWS), header.mean, header.std))
        means = features.reshape(-1, CLASSES, features.shape[1]).mean(dim=0)
        net.head.prototypes.copy_(20 * (means - means.mean(dim=0)))  # so that it knows something
    accuracy, moments = measure_client(net, data, header, CPU)
    return Upload(
        UploadHeader(
            client=client,
            epoch=1,
            samples=len(data),
            train_accuracy=accuracy,
            briefing=briefing.digest,
            telemetry=({"epoch": 1},),
        ),
        {
            **prefixed(NET, net.state_dict()),
            "label_counts": data.label_counts(CLASSES),
            **moments,
        },
    )


HOLDINGS = {
    "skewed": [[0, 0, 1, 2], [1] * 6 + [0], [2, 2, 2, 1, 0, 0, 0, 0, 0]],
    "single-class clients": [[0] * 4, [1] * 5, [2, 2]],
    "single-image client": [[0, 1, 2, 1, 2], [1]],
    "class nobody holds": [[0, 0, 1], [1, 1, 0, 0]],
    "lone client": [[0, 1, 1, 2]],
    "lone client with one class": [[1, 1, 1]],
}


def written(folder: Path, holdings: list[list[int]]) -> list[Path]:
    paths = [folder / f"{k}.safetensors" for k in range(len(holdings))]
    for k, (path, labels) in enumerate(zip(paths, holdings, strict=True)):
        upload_of(str(k), images_of(labels, "client", k)).save(path)
    return paths
