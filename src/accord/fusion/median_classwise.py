"""The median of the clients' calibrated scores."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import Field
from torch import Tensor

from accord.fusion.base import Combiner, Outputs, Summary, Vote, fusions
from accord.fusion.classwise import CENTRE, NOBODY, Centre, Classwise, ClasswiseCombiner
from accord.fusion.placing import median_among, placed
from accord.messages import Briefing


@fusions.register("median-classwise")
class MedianClasswise(Vote):
    """score_c(x) = median_k (s_kc(x) − μ_kc)/σ_kc over the clients that hold class c.

    It is `classwise` with a median instead of a weighted mean. If fewer than half of the clients
    that claim a class are hostile, its score lies between those of honest clients. A class that
    two clients hold is not protected.
    """

    centre: Centre = Field("mean", description=CENTRE)

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:
        plain = Classwise(centre=self.centre).combiner(clients, briefing)
        return MedianClasswiseCombiner(**dict(plain.named_buffers()))


class MedianClasswiseCombiner(ClasswiseCombiner, name="median-classwise"):
    def vote(self, client: int, outputs: Outputs) -> Tensor:
        return placed(self.calibrated(client, outputs), client, len(self.votes))

    def decide(self, total: Tensor) -> Tensor:
        return median_among(total, self.votes > 0, NOBODY)
