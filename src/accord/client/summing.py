"""A client of a closed form: it encodes its images once and sends sums of their features."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.client.base import Client, Precision, Tell
from accord.client.telemetry import Event
from accord.closed_form.sums import Sums
from accord.core.errors import ClientError
from accord.data.imageset import ImageSet
from accord.data.views import normalise
from accord.messages import MAP, Briefing, SummingSpec, Upload, UploadHeader, unprefixed
from accord.nets.maps import FeatureMap, MapConfig

IMAGES = 64  # images that the map encodes at a time
ROWS = 1_024  # rows added to the scatter at a time: their product is float32, the sum float64


class Summing(Client):
    """A client that sums fixed features. Its one epoch is one pass over its images."""

    def __init__(
        self, data: ImageSet, briefing: Briefing, name: str, precision: Precision | None = None
    ) -> None:
        super().__init__(data, briefing, name, precision or Precision())
        header = briefing.header
        if not isinstance(header.training, SummingSpec) or header.net.map is None:
            raise ValueError("the briefing has no map")
        self.packing = header.training.packing
        self.map = FeatureMap(MapConfig.model_validate(header.net.map), header.channels).eval()
        self.map.load_state_dict(unprefixed(MAP, briefing.tensors))
        self.map = self.map.to(self.precision.device)
        self.sums = Sums.none(self.classes, self.map.width)

    def one_epoch(self, tell: Tell | None = None) -> Event:
        """Encodes every image."""
        for rows in torch.split(torch.arange(len(self.data)), ROWS):
            self.add(self.features(rows), torch.from_numpy(self.data.labels[rows.numpy()]))
            if tell:
                tell((int(rows[-1]) + 1) / len(self.data))
        self.epoch += 1
        return {"epoch": self.epoch}

    def features(self, positions: Tensor) -> Tensor:
        """φ of the images at `positions`, a few at a time."""
        return torch.cat([self._some(some) for some in torch.split(positions, IMAGES)])

    def add(self, features: Tensor, labels: Tensor) -> None:
        self.sums = self.sums + sums_of(features, labels, self.classes)

    def _some(self, positions: Tensor) -> Tensor:
        header = self.briefing.header
        with torch.inference_mode():
            images = self.data.batch(positions).to(self.precision.device)
            features: Tensor = self.map(normalise(images, header.mean, header.std)).cpu()
        if not bool(torch.isfinite(features).all()):
            raise ClientError("features of its images are NaN or infinite: the map may be damaged.")
        return features

    def upload(self) -> Upload:
        if not bool(self.sums.scatter.float().isfinite().all()):
            raise ClientError(
                "the sums of its features are too large for float32. Choose a map whose features "
                "are smaller."
            )
        header = UploadHeader(
            client=self.name,
            epoch=self.epoch,
            samples=int(self.said.sum()),
            briefing=self.briefing.digest,
            telemetry=tuple(self.telemetry),
        )
        sums = self.hostile.sums(self.sums, self.said) if self.hostile else self.sums
        return Upload(header, sums.tensors(self.packing))


def sums_of(features: Tensor, labels: Tensor, classes: int) -> Sums:
    """The sums of some rows, centred at their own mean so that float32 suffices for the product."""
    counts = torch.bincount(labels, minlength=classes)
    sums = torch.zeros(classes, features.shape[1], dtype=torch.float64)
    sums.index_add_(0, labels, features.double())
    centred = features - (sums.sum(dim=0) / len(features)).float()
    return Sums(counts, sums, (centred.T @ centred).double())
