"""Class-wise votes whose influence is bounded, for each client and each image."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from pydantic import Field
from torch import Tensor

from accord.fusion.base import Combiner, Outputs, Summary, fusions
from accord.fusion.classwise import Classwise, ClasswiseCombiner
from accord.messages import Briefing


@fusions.register("clipped-classwise")
class ClippedClasswise(Classwise):
    """score_c(x) = Σ_k r_kc clip((s_kc(x) − μ_kc)/σ_kc, ±limit), with bounded weights r_kc.

    It is `classwise` with two bounds: a calibrated score is cut to `limit`, and the weight of a
    client for a class is at most `most` times the median weight of the clients that hold the class.
    A client that claims very many images, or whose σ is very small, then has no more influence than
    a few others.
    """

    limit: float = Field(3.0, gt=0, description="largest absolute value of a calibrated score")
    most: float = Field(
        2.0, ge=1, description="largest weight for a class, in medians of those that hold it"
    )

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:
        plain = dict(super().combiner(clients, briefing).named_buffers())
        votes = plain.pop("votes")
        usual = votes.where(votes > 0, torch.nan).nanmedian(dim=0).values.nan_to_num()
        votes = votes.minimum(self.most * usual)
        limit = torch.tensor(self.limit)
        return ClippedCombiner(
            votes=votes / votes.sum(dim=0).clamp(min=1e-12), limit=limit, **plain
        )


class ClippedCombiner(ClasswiseCombiner, name="clipped-classwise"):
    limit: Tensor

    def calibrated(self, client: int, outputs: Outputs) -> Tensor:
        return super().calibrated(client, outputs).clamp(-self.limit, self.limit)
