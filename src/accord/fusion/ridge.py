"""The closed form: clients' sums are added, and the best linear classifier is solved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import torch
from pydantic import Field

from accord.fusion.base import Merge, Scene, Vote, fusions
from accord.fusion.outputs import OutputEnsemble
from accord.messages import MAP, NET, Upload, UploadHeader
from accord.ridge import Ridge, solve
from accord.sums import Sums

SURE = 1e-3  # the least variance of a score


@fusions.register("ridge")
class RidgeFusion(Merge):
    """argmax_c of W(φ(x) − μ) + ȳ, W = (S + λI)⁻¹ Σ(φ − μ)(y − ȳ)ᵀ over all clients' images.

    Sums do not care who holds what: the answer is that of all images in one place, for every
    partition. λ is chosen by generalised cross-validation, from the sums alone.
    """

    penalty: float | None = Field(None, gt=0, description="λ; null: by cross-validation")
    balance: float = Field(
        1.0, ge=0, le=1, description="β: classes count as n_c^(1−β); 1: all alike, 0: as they are"
    )

    @property
    def of(self) -> Literal["nets", "sums"]:
        return "sums"

    def asked(self) -> Vote:
        return OutputEnsemble()

    def merge(self, scene: Scene) -> Iterator[Upload]:
        total = scene.total
        if total is None:
            raise ValueError("'ridge' fuses sums")
        yield classifier(total, solve(total, self.penalty, self.balance, scene.tell), scene)


def classifier(total: Sums, found: Ridge, scene: Scene) -> Upload:
    """The map and the solution as one net."""
    header = UploadHeader(
        client="ridge", epoch=1, samples=total.total, briefing=scene.briefing.digest
    )
    values = {name: t for name, t in scene.briefing.tensors.items() if name.startswith(MAP)}
    # Logits whose softmax are probabilities; a perfect fit is still not certain.
    scale = 1 / max(found.variance, SURE)
    head = {"prototypes": scale * found.weights, "bias": scale * found.bias}
    tensors = {**values, **{f"{NET}head.{name}": tensor.float() for name, tensor in head.items()}}
    return Upload(header, {**tensors, "label_counts": total.counts.to(torch.int64)})
