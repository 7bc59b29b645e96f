"""The coordinate-wise trimmed mean of the clients' nets."""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from accord.fusion.base import fusions
from accord.fusion.coordinates import CoordinateWise


@fusions.register("trimmed-mean")
class TrimmedMean(CoordinateWise):
    """W[j] = the mean of W_k[j] without the g smallest and the g largest, g = ⌊share·K⌋.

    Every client counts the same, whatever number of images it claims (Yin et al., 2018,
    arXiv:1803.01498). Up to g hostile clients cannot move a weight beyond those of honest clients.
    With fewer than 1/share clients nothing is trimmed.
    """

    share: float = Field(
        0.2, gt=0, lt=0.5, description="share of the clients that is dropped at either end"
    )

    def summarise(self, values: Tensor) -> Tensor:
        ends = int(self.share * len(values) + 1e-9)  # 0.3·10 is a little below 3
        return values.sort(dim=0).values[ends : len(values) - ends].mean(dim=0)
