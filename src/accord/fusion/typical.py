"""Class-wise votes for clients with different domains: who knows such images has more weight."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from accord.fusion.base import Combiner, Outputs, Summary, fusions
from accord.fusion.classwise import Classwise, ClasswiseCombiner
from accord.fusion.split import histograms, likeness
from accord.fusion.standardised import FLAT
from accord.messages import Briefing


@fusions.register("typical")
class Typical(Classwise):
    """`classwise`, where client k has the weight w_k(x) ∝ (1 + d_k(x))⁻ˢ for the image x.

    d_k(x) is the mean of ((f_k(x) − μ_k)/σ_k)² over the features: about 1 for an image like the
    client's own, and larger for an image unlike them. μ_k and σ_k are the moments in the client's
    upload. If clients see their images in different ways, a net that has never seen such images
    does not disturb those that have. An image can also be unlike a client's own because the client
    lacks its class. Therefore s is the mean cosine of two clients' label histograms: 1 if all have
    the same labels, and 0 if no two have a label in common. Then it is `classwise`.
    """

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:
        plain = super().combiner(clients, briefing)
        variance = torch.stack([client.tensors["feature_var"] for client in clients])
        return TypicalCombiner(
            **dict(plain.named_buffers()),
            mean=torch.stack([client.tensors["feature_mean"] for client in clients]),
            scale=variance.clamp(min=FLAT).sqrt(),
            power=torch.tensor(likeness(histograms(clients)), dtype=torch.float32),
        )


class TypicalCombiner(ClasswiseCombiner, name="typical"):
    mean: Tensor
    scale: Tensor
    power: Tensor  # s

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        """(N, C + 1): the weighted scores, and the weight itself."""
        standard = (outputs.features - self.mean[client]) / self.scale[client]
        weight = (1 + standard.square().mean(dim=1, keepdim=True)).pow(-self.power)
        return torch.cat([super().vote(client, outputs) * weight, weight], dim=1)

    def decide(self, total: Tensor) -> Tensor:
        scores, weights = total[:, :-1], total[:, -1:]
        return super().decide(scores * (len(self.mean) / weights))
