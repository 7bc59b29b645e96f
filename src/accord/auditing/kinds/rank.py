"""The number of different images in a client's sums, and the number that it claims."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Literal

import torch

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign
from accord.closed_form.sums import Sums
from accord.core.names import shown
from accord.core.randomness import torch_generator
from accord.messages import Upload

WIDEST = 1_000  # rows of a scatter whose eigenvalues are computed; a wider one is projected
SMALL = 1e-6  # × the largest eigenvalue: smaller ones come from rounding


@kinds.register("rank")
class Rank(Kind):
    """The scatter of n different images has n − 1 eigenvalues above 0, or d if n is larger.

    Images that count several times add none.
    """

    name = "rank"
    of: ClassVar[Literal["nets", "sums", "both"]] = "sums"
    quick = False

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.found: dict[str, tuple[int, int, int]] = {}  # client → claimed, possible, found

    def see(self, upload: Upload) -> None:
        if "scatter_spread" in upload.tensors:
            return  # packed scatters are rounded too much
        if upload.header.samples < 2:
            return  # one image has no scatter
        scatter = Sums.of(upload.tensors).scatter
        width = len(scatter)
        if width > WIDEST:
            draws = torch_generator(0, "audit-rank", width)
            some = torch.randn(width, WIDEST, generator=draws, dtype=scatter.dtype) / width**0.5
            scatter = some.T @ scatter @ some
        values = torch.linalg.eigvalsh(scatter)
        rank = int((values > SMALL * values[-1].clamp(min=1e-300)).sum())
        samples = upload.header.samples
        self.found[upload.header.client] = (samples, min(samples - 1, len(scatter)), rank)

    def judge(self) -> Iterable[Sign]:
        usual = torch.tensor([rank / max(most, 1) for _, most, rank in self.found.values()])
        median = usual.median().item() if len(usual) else 0.0
        for client, (samples, most, rank) in self.found.items():
            share = rank / max(most, 1)
            strength = 0.0 if share >= median else min(median / max(share, 0.05) / 2, 10.0)
            yield Sign(
                client,
                self.name,
                strength,
                f"client {shown(client)} claims {samples:,} images; its scatter has {rank:,} "
                f"independent directions of {most:,} possible ones",
            )
