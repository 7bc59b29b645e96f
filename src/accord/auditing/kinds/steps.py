"""The number of images that a client claims, and the number of steps that its net has seen."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import ClassVar, Literal

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign
from accord.core.names import shown
from accord.messages import NET, Upload

TRACKED = ".num_batches_tracked"


@kinds.register("steps")
class Steps(Kind):
    """A batch norm counts batches; n images in batches of B need epochs·⌈n/B⌉ of them.

    Nets without batch norm tell nothing. A client that wants to hide can change this number too.
    """

    name = "steps"
    of: ClassVar[Literal["nets", "sums", "both"]] = "nets"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.claims: dict[str, tuple[int, int, int]] = {}  # client → images, expected, found

    def see(self, upload: Upload) -> None:
        names = [n for n in upload.tensors if n.startswith(NET) and n.endswith(TRACKED)]
        if not names:
            return
        start = self.case.briefing.tensors
        budget, samples = self.case.briefing.header.budget, upload.header.samples
        # A net with several forward passes per step counts each of them; the smallest is a bound.
        found = min(int(upload.tensors[n]) - int(start[n]) for n in names)
        expected = budget.epochs * math.ceil(samples / budget.batch)
        self.claims[upload.header.client] = (samples, expected, found)

    def judge(self) -> Iterable[Sign]:
        for client, (samples, expected, found) in self.claims.items():
            # Views of an image may be passed one by one, so that only too few batches are odd.
            strength = 0.0 if found >= expected else min(expected / max(found, 1) / 2, 10.0)
            yield Sign(
                client,
                self.name,
                strength,
                f"client {shown(client)} claims {samples:,} images, which are {expected:,} "
                f"batches; its batch norms have counted {found:,}",
            )
