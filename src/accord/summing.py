"""A client with fixed features: it looks at its images once and tells their sums.

`Summing` stands where `Training` does for recipes that train: one epoch, one upload.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import torch
from torch import Tensor

from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.errors import ClientError
from accord.maps import FeatureMap, MapConfig
from accord.messages import MAP, Briefing, Upload, UploadHeader, unprefixed
from accord.sums import Sums
from accord.telemetry import Event

IMAGES = 64  # through the map at a time
ROWS = 1_024  # features added to the scatter at a time: a product in float32, the sum in float64


class Summing:
    """One client's sums."""

    def __init__(
        self, data: ImageSet, briefing: Briefing, client: str, device: torch.device
    ) -> None:
        header = briefing.header
        if header.net.map is None:
            raise ValueError("the briefing has no map")
        self.data, self.briefing, self.client, self.device = data, briefing, client, device
        self.map = FeatureMap(MapConfig.model_validate(header.net.map), header.channels).eval()
        self.map.load_state_dict(unprefixed(MAP, briefing.tensors))
        self.map = self.map.to(device)
        self.sums = Sums.none(len(header.classes), self.map.width)

    def run(self, tell: Callable[[float], None] | None = None) -> Event:
        """Looks at every image; `tell` hears the share that is done."""
        started = time.perf_counter()
        for rows in torch.split(torch.arange(len(self.data)), ROWS):
            self.add(self.features(rows), torch.from_numpy(self.data.labels[rows.numpy()]))
            if tell:
                tell((int(rows[-1]) + 1) / len(self.data))
        return {"epoch": 1, "seconds": time.perf_counter() - started}

    def features(self, positions: Tensor) -> Tensor:
        """φ of the images at `positions`, a few at a time."""
        return torch.cat([self._some(some) for some in torch.split(positions, IMAGES)])

    def add(self, features: Tensor, labels: Tensor) -> None:
        self.sums = self.sums + sums_of(features, labels, len(self.sums.counts))

    def _some(self, positions: Tensor) -> Tensor:
        header = self.briefing.header
        with torch.inference_mode():
            images = self.data.batch(positions).to(self.device)
            features: Tensor = self.map(normalise(images, header.mean, header.std)).cpu()
        if not bool(torch.isfinite(features).all()):
            raise ClientError("features of its images are NaN or infinite: is the map damaged?")
        return features

    def upload(self, event: Event) -> Upload:
        if not bool(self.sums.scatter.float().isfinite().all()):
            raise ClientError("the sums of its features are too large for float32: scale the map.")
        packing = self.briefing.header.training["packing"]
        header = UploadHeader(
            client=self.client,
            epoch=1,
            samples=len(self.data),
            briefing=self.briefing.digest,
            telemetry=(event,),
        )
        return Upload(header, self.sums.tensors(packing))


def sums_of(features: Tensor, labels: Tensor, classes: int) -> Sums:
    """Of some rows: about their own mean, so that float32 is enough for the product."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, features.double())
    centred = features - (sums.sum(dim=0) / len(features)).float()
    return Sums(counts, sums, (centred.T @ centred).double())
