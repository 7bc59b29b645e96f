"""The coordinate-wise median of the clients' nets."""

from __future__ import annotations

from torch import Tensor

from accord.fusion.base import fusions
from accord.fusion.coordinates import CoordinateWise


@fusions.register("median")
class Median(CoordinateWise):
    """W[j] = median_k W_k[j]; for an even number of clients, the mean of the two middle values.

    Every client counts the same, whatever number of images it claims (Yin et al., 2018,
    arXiv:1803.01498). If fewer than half of the clients are hostile, every weight lies between the
    smallest and the largest weight of an honest client. With strong label skew honest clients
    differ so much that the median is worse than the mean.
    """

    def summarise(self, values: Tensor) -> Tensor:
        return middle(values)


def middle(values: Tensor) -> Tensor:
    """The median over the first dimension; of an even number, the mean of the two middle ones."""
    ordered, count = values.sort(dim=0).values, len(values)
    return (ordered[(count - 1) // 2] + ordered[count // 2]) / 2
