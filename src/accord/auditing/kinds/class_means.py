"""The class means in a client's sums, compared class by class with those of other clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch
from torch import Tensor

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.kinds.scale import within
from accord.auditing.sign import DEVIATIONS, Sign, distances
from accord.core.names import shown
from accord.messages import Upload

FACTOR = 3.0  # × the distance that chance explains; clients that see their images differently: 2
FEWEST_IMAGES = 2  # of a class, for its mean to be compared


@kinds.register("class-means")
class ClassMeans(Kind):
    """T_k: the mean over classes of ‖μ_kc − m_c‖² / (σ²(1/n_kc + 1/n_c)), 1 for honest clients.

    m_c is the coordinate-wise median of the class means of the other clients that hold c, n_c their
    number of images, and σ² the median variance within classes. Chance alone explains T = 1,
    whichever classes a client holds and however many images it has. With labels that are wrong, T
    is much larger.
    """

    name = "class-means"
    of: ClassVar[Literal["nets", "sums", "both"]] = "sums"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.names: list[str] = []
        self.means: list[Tensor] = []
        self.counts: list[Tensor] = []
        self.within: list[float] = []

    def see(self, upload: Upload) -> None:
        counts, sums = upload.tensors["label_counts"], upload.tensors["feature_sums"].double()
        self.names.append(upload.header.client)
        self.counts.append(counts)
        self.means.append((sums / counts.clamp(min=1)[:, None]).float())
        found = within(upload)
        if found is not None:
            self.within.append(found)

    def judge(self) -> Iterable[Sign]:
        if not self.within:
            return
        variance = float(torch.tensor(self.within).median())
        counts, found = torch.stack(self.counts), {}
        for place, name in enumerate(self.names):
            ratios = [r for c in range(counts.shape[1]) if (r := self._ratio(place, c, counts))]
            if ratios:
                found[name] = sum(ratios) / len(ratios) / max(variance, 1e-30)
        for name, distance in distances(found, floor=0.2).items():
            # Both are needed: far from other clients, and further than chance explains.
            strength = min(distance / DEVIATIONS, found[name] / FACTOR)
            yield Sign(
                name,
                self.name,
                max(strength, 0.0),
                f"the class means of client {shown(name)} are as far from those of others as "
                f"{found[name]:.3g} times the distance that chance explains",
            )

    def _ratio(self, place: int, label: int, counts: Tensor) -> float | None:
        """‖μ_kc − m_c‖² / (1/n_kc + 1/n_c); None if nobody else holds the class."""
        own = int(counts[place, label])
        others = [k for k in range(len(counts)) if k != place and counts[k, label] >= FEWEST_IMAGES]
        if own < FEWEST_IMAGES or len(others) < 2:
            return None
        means = torch.stack([self.means[k][label] for k in others])
        middle = means.quantile(0.5, dim=0)
        apart = (self.means[place][label] - middle).double().square().sum().item()
        # The median of several means is less exact than their pooled mean; the smallest number of
        # images of one of them, times their number, is a careful estimate.
        pooled = len(others) * int(counts[others, label].min())
        return apart / (1 / own + 1 / pooled)
