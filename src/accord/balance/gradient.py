"""A rule without λ: TorchJD mixes the two gradients so that they do not conflict."""

from __future__ import annotations

import math
from collections.abc import Callable
from importlib.util import find_spec
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from accord.balance.base import Balance, Readings, Step, Weigher, Weights, balances
from accord.core.errors import AccordError

Mix = Callable[[Tensor], Tensor]  # Gramian (2 × 2) → (a, b)
NEEDED = ("torchjd", "qpsolvers", "quadprog")
TINY = torch.finfo(torch.float32).tiny


@balances.register("gradient")
class Gradient(Balance):
    """∇ = a·∇L_loc + b·∇L_al on shared parameters, where an aggregator chooses (a, b).

    Shared parameters are those that both losses depend on; on all others ∇ = ∇L_loc. UPGrad
    (Quinton and Rey 2024, arXiv 2406.16232) projects each gradient onto the cone in which no loss
    rises, and adds the projections: a = b = 1 while the gradients do not conflict. Telemetry shows
    b/a of the latest step as λ.
    """

    mixes_gradients = True

    aggregator: Literal["upgrad", "dualproj", "mgda"] = Field(
        "upgrad",
        description="TorchJD's rule: upgrad projects each gradient; dualproj projects the sum of "
        "the gradients; mgda takes the shortest mix (a + b = 1)",
    )
    lambda_: float = Field(
        1.0, gt=0, alias="lambda", description="factor of L_al before the gradients are mixed"
    )

    def start(self, label_counts: Tensor) -> Weigher:  # noqa: ARG002 - needs gradients alone
        self.require()
        return GradientWeigher(self.lambda_, _mix(self.aggregator))

    def require(self) -> None:
        missing = [name for name in NEEDED if find_spec(name) is None]
        if missing:
            raise AccordError(
                f"the balance 'gradient' needs {', '.join(missing)}, which is not installed: "
                "pip install 'accord[gradient]'."
            )


class GradientWeigher(Weigher):
    wants_gradients = True
    mixed: Tensor

    def __init__(self, lambda_: float, mix: Mix) -> None:
        super().__init__()
        self.lambda_, self.mix = lambda_, mix
        self.register_buffer("mixed", torch.tensor([1.0, lambda_]))

    def weigh(self, step: Step) -> Weights:
        if step.gradients is None:
            raise ValueError("the rule `gradient` needs the gradients of every step")
        scale = torch.tensor([1.0, self.lambda_])
        gramian = step.gradients.gramian().cpu() * scale[:, None] * scale
        # If a value is not finite, both weights become NaN, and the epoch's check stops the client.
        finite = bool(gramian.isfinite().all())
        mixed = self.mix(gramian) * scale if finite else torch.full((2,), math.nan)
        self.mixed = mixed.to(self.mixed)
        return Weights(align=self.mixed[1], shared=self.mixed[0])

    def readings(self, progress: float) -> Readings:  # noqa: ARG002 - depends on gradients alone
        a, b = self.mixed.tolist()
        return Readings(None if a == 0 else b / a)


def _mix(name: str) -> Mix:
    """The function that computes (a, b) from a Gramian, by TorchJD's rule of that name."""
    from torchjd import aggregation as jd  # an optional extra

    if name == "mgda":
        return _scaled(jd.MGDAWeighting())
    projecting = {"upgrad": jd.UPGradWeighting, "dualproj": jd.DualProjWeighting}[name]

    def mix(gramian: Tensor) -> Tensor:
        """(a, b) of the projected sum of both gradients.

        Both gradients are scaled to length 1, and their lengths are given as preference weights.
        The cone and the sum stay the same. Without this scaling, TorchJD's regularisation of the
        Gramian would be larger than a short gradient.
        """
        lengths = gramian.diagonal().clamp(min=0).sqrt()
        longest = lengths.max() if bool(lengths.max() > 0) else torch.ones(())
        lengths = torch.where(lengths > 0, lengths, longest)
        lengths, whole = lengths / lengths.max(), lengths.max()
        unit = gramian / whole**2 / lengths[:, None] / lengths
        weights: Tensor = projecting(lengths)(unit)
        return weights / lengths

    return mix


def _scaled(weighting: Mix) -> Mix:
    """`weighting` of the Gramian scaled to size 1, because TorchJD treats a small one as zero."""
    return lambda gramian: weighting(gramian / gramian.diagonal().max().clamp(min=TINY))
