"""The median of the clients' probabilities."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from accord.fusion.base import Combiner, Outputs, Summary, Vote, fusions
from accord.fusion.placing import median_among, placed
from accord.messages import Briefing


@fusions.register("median-outputs")
class MedianOutputs(Vote):
    """score_c(x) = ln median_k softmax(logits_k(x))_c, over the clients that hold class c.

    Every client counts the same, whatever number of images it claims. If fewer than half of the
    clients that claim a class are hostile, its score lies between those of honest clients. A class
    that two clients hold is not protected. With `among: all` the median is over all clients: then
    a class that fewer than half of them hold is rarely predicted.
    """

    among: Literal["holders", "all"] = Field(
        "holders", description="whose probabilities of a class count: of clients that hold it, all"
    )

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:  # noqa: ARG002
        counts = torch.stack([client.label_counts for client in clients])
        held = counts > 0 if self.among == "holders" else torch.ones_like(counts, dtype=torch.bool)
        return MedianOutputCombiner(held=held)


class MedianOutputCombiner(Combiner, name="median-outputs"):
    held: Tensor  # (K, C)

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        return placed(outputs.logits.softmax(dim=1), client, len(self.held))

    def decide(self, total: Tensor) -> Tensor:
        found = median_among(total, self.held, 0.0)
        # A probability may underflow to 0; its log must stay finite.
        return found.clamp(min=torch.finfo(found.dtype).tiny).log()
