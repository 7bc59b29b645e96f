"""The size of the features in a client's sums, per image."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign, ratio_strengths, times
from accord.closed_form.packing import variances
from accord.core.names import shown
from accord.messages import Upload

FACTOR = 2.0  # all clients use the same φ, so that honest ones differ little


@kinds.register("scale")
class Scale(Kind):
    """√(tr(S_w)/(n − C)) within classes: the spread of φ about its class means, per image.

    The spread within classes does not depend on which classes a client holds.
    """

    name = "scale"
    of: ClassVar[Literal["nets", "sums", "both"]] = "sums"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.spreads: dict[str, float] = {}

    def see(self, upload: Upload) -> None:
        found = within(upload)
        if found is not None:
            self.spreads[upload.header.client] = found**0.5

    def judge(self) -> Iterable[Sign]:
        for client, (strength, ratio) in ratio_strengths(self.spreads, factor=FACTOR).items():
            text = (
                f"the features of client {shown(client)} spread within their classes by "
                f"{times(ratio)} the median of all clients"
            )
            yield Sign(client, self.name, strength, text)


def within(upload: Upload) -> float | None:
    """tr(S_w)/(n − C), the variance of an image about its class mean; None for too few images.

    Only the diagonal of the scatter is read, because all of it takes seconds if it is wide.
    """
    counts = upload.tensors["label_counts"].double()
    sums = upload.tensors["feature_sums"].double()
    free = float(counts.sum() - (counts > 0).sum())
    if free < 1:
        return None
    means = sums / counts.clamp(min=1)[:, None]
    between = (counts @ (means - sums.sum(dim=0) / counts.sum()).square()).sum()
    return max(float(variances(upload.tensors, sums.shape[1]).sum() - between), 0.0) / free
