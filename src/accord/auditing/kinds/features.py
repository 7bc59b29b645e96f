"""The size of the features of a client's net on its own images."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign, ratio_strengths, times
from accord.core.names import shown
from accord.messages import Upload

FACTOR = 5.0


@kinds.register("features")
class FeatureSize(Kind):
    """‖class mean‖ compared with other clients that hold the class, and √(mean f²) overall.

    The classes are compared one by one, so that a client with rare classes does not stand out. Only
    larger features are a sign, because they outweigh others.
    """

    name = "features"
    of: ClassVar[Literal["nets", "sums", "both"]] = "nets"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.overall: dict[str, float] = {}
        self.norms: dict[str, Tensor] = {}  # client → norm of each class mean; NaN if not held

    def see(self, upload: Upload) -> None:
        t, client = upload.tensors, upload.header.client
        square = t["feature_mean"].double().square().sum() + t["feature_var"].double().sum()
        self.overall[client] = square.sqrt().item()
        norms = t["class_means"].double().norm(dim=1)
        self.norms[client] = norms.where(t["label_counts"] > 0, torch.nan)

    def judge(self) -> Iterable[Sign]:
        usual = torch.stack(list(self.norms.values())).nanmedian(dim=0).values
        of_classes = {}
        for client, norms in self.norms.items():
            ratios = (norms / usual.clamp(min=1e-12))[~norms.isnan()].tolist()
            of_classes[client] = statistics.median(ratios)
        for what, values in {"features": self.overall, "class means": of_classes}.items():
            for client, (strength, ratio) in ratio_strengths(values, factor=FACTOR).items():
                text = f"the {what} of client {shown(client)} are {times(ratio)} the median in size"
                yield Sign(client, self.name, strength if ratio > 1 else 0.0, text)
