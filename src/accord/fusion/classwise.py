"""Calibrated class-wise votes: a client's weight for a class grows with its images of the class."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn import functional as F

from accord.fusion.base import Combiner, Outputs, Summary, Vote, fusions
from accord.messages import Briefing

NARROW = 1e-2  # smallest standard deviation of a cosine, for clients with one image or one class
Centre = Literal["mean", "rotated", "none"]
CENTRE = (
    "μ_kc: the mean over the client's images, with equal weight for each class; the midpoint "
    "between images of the class and the same images rotated by 90°; or no calibration (μ = 0, "
    "σ = 1)"
)
NOBODY = -30.0  # the score of a class that no client holds: it is never predicted


@fusions.register("classwise")
class Classwise(Vote):
    """score_c(x) = Σ_k r_kc (s_kc(x) − μ_kc)/σ_kc, s_kc = cos(f_k(x), P_k[c]), Σ_k r_kc = 1.

    Scores of different clients are not comparable, because nets differ in scale and offset.
    Therefore each score is centred and scaled with statistics that the client measured on its own
    images (2C numbers in its upload). A client with one class measures a small σ. With `centre:
    mean`, images of its class then score about 0 and all others less, so its influence is small.
    With `centre: rotated` its influence is larger. If images of other classes look more similar to
    its class than rotated images do, this client dominates the sum, and the accuracy can fall to
    near chance. Without calibration such clients can dominate as well. A class that no client
    holds is never predicted.
    """

    weights: Literal["sqrt", "count", "log"] = Field(
        "sqrt", description="r_kc ∝ √n_kc, n_kc or log(1 + n_kc)"
    )
    centre: Centre = Field("mean", description=CENTRE)

    def combiner(self, clients: Sequence[Summary], briefing: Briefing) -> Combiner:  # noqa: ARG002
        counts = torch.stack([client.label_counts for client in clients]).double()
        kinds = {"sqrt": counts.sqrt(), "count": counts, "log": counts.log1p()}
        votes = kinds[self.weights]
        held = votes.sum(dim=0) > 0
        votes = votes / votes.sum(dim=0).clamp(min=1e-12)
        scores = [client.tensors for client in clients]
        spread = torch.stack([found["score_std"] for found in scores]).clamp(min=NARROW)
        centre = torch.stack([found["score_mean"] for found in scores])
        if self.centre == "rotated":
            ends = [(found["score_own"] + found["score_rotated"]) / 2 for found in scores]
            centre = torch.stack(ends)
        elif self.centre == "none":
            centre, spread = torch.zeros_like(centre), torch.ones_like(spread)
        P = torch.stack([F.normalize(client.prototypes, dim=1) for client in clients])
        return ClasswiseCombiner(
            votes=votes.float(), centre=centre, spread=spread, prototypes=P, held=held
        )


class ClasswiseCombiner(Combiner, name="classwise"):
    votes: Tensor
    centre: Tensor
    spread: Tensor
    prototypes: Tensor
    held: Tensor

    def calibrated(self, client: int, outputs: Outputs) -> Tensor:
        """The client's scores, comparable with those of others."""
        scores = F.normalize(outputs.features, dim=1) @ self.prototypes[client].T
        return (scores - self.centre[client]) / self.spread[client]

    def vote(self, client: int, outputs: Outputs) -> Tensor:
        return self.calibrated(client, outputs) * self.votes[client]

    def decide(self, total: Tensor) -> Tensor:
        return total.masked_fill(~self.held, NOBODY)
