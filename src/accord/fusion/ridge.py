"""The closed form: the server adds the clients' sums and solves a ridge regression."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from accord.closed_form.posterior import Prior, log_probabilities
from accord.closed_form.ridge import solve
from accord.closed_form.sums import Sums
from accord.core.heap import large_blocks_apart
from accord.fusion.base import Merge, Scene, Vote, fusions
from accord.fusion.outputs import OutputEnsemble
from accord.messages import MAP, NET, Upload, UploadHeader


@fusions.register("ridge")
class RidgeFusion(Merge):
    """s = W(φ − μ) + ȳ, W = (S + λI)⁻¹ Σ(φ − μ)(y − ȳ)ᵀ over all clients; the largest ln p(c | s).

    s | c ~ N(m_c, V) models the scores of unseen images. The sums do not depend on the partition:
    the result is that of all images in one place. λ is chosen by generalised cross-validation. λ,
    m and V are computed from the sums alone.
    """

    penalty: float | None = Field(
        None, gt=0, description="λ; null means that cross-validation chooses it"
    )
    prior: Prior = Field(
        "uniform",
        description="π, the class probabilities: equal for all classes (uniform), or as in the "
        "training data (data)",
    )

    @property
    def of(self) -> Literal["nets", "sums"]:
        return "sums"

    def asked(self) -> Vote:
        return OutputEnsemble()

    def merge(self, scene: Scene) -> Iterator[Upload]:
        total = scene.total
        if total is None:
            raise ValueError("the fusion 'ridge' needs sums, but the uploads hold none")
        with large_blocks_apart():
            found = solve(total, self.penalty, scene.tell)
        event = {"epoch": 1, "penalty": found.penalty, "freedom": found.freedom}
        yield classifier(total, *log_probabilities(found, total.counts, self.prior), event, scene)


def classifier(
    total: Sums, weights: Tensor, bias: Tensor, event: dict[str, float], scene: Scene
) -> Upload:
    """The map and the solution as one net."""
    header = UploadHeader(
        client="ridge",
        epoch=1,
        samples=total.total,
        briefing=scene.briefing.digest,
        telemetry=(event,),
    )
    values = {name: t for name, t in scene.briefing.tensors.items() if name.startswith(MAP)}
    head = {"prototypes": weights, "bias": bias}
    tensors = {**values, **{f"{NET}head.{name}": tensor.float() for name, tensor in head.items()}}
    return Upload(header, {**tensors, "label_counts": total.counts.to(torch.int64)})
