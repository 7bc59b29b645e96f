"""The number of images that a client claims, compared with the others."""

from __future__ import annotations

from collections.abc import Iterable

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import CLEAR, Sign, ratio_strengths, times
from accord.core.names import shown
from accord.messages import Upload

FACTOR = 20.0
LARGEST = 0.9 * CLEAR  # honest clients differ as much, so that this alone is never a clear sign


@kinds.register("counts")
class Counts(Kind):
    """Σ_c n_kc; only too many images give a client too much weight."""

    name = "counts"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.images: dict[str, float] = {}

    def see(self, upload: Upload) -> None:
        self.images[upload.header.client] = float(upload.header.samples)

    def judge(self) -> Iterable[Sign]:
        for client, (strength, ratio) in ratio_strengths(self.images, factor=FACTOR).items():
            text = (
                f"client {shown(client)} claims {self.images[client]:,.0f} images, "
                f"{times(ratio)} the median of all clients"
            )
            yield Sign(client, self.name, min(strength, LARGEST) if ratio > 1 else 0.0, text)
