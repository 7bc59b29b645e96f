"""The closed form with a temperature that is measured on images which nobody has trained on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

import torch
from torch import Tensor

from accord.closed_form.leaving import Checked
from accord.closed_form.posterior import Prior
from accord.closed_form.temperature import sureness
from accord.fusion.base import Scene, fusions
from accord.fusion.checked_ridge import checked_images
from accord.fusion.ridge import RidgeFusion
from accord.messages import NET, Upload

SUREST = 10.0  # the largest factor of the log-probabilities


@fusions.register("ridge-calibrated")
class CalibratedRidge(RidgeFusion):
    """`ridge` with ln p / T, where T maximises the likelihood of the server's validation images.

    `ridge` computes T from the sums, as if the features were fixed. A net that was trained on the
    summed images separates them better than unseen ones, so that this T is too small. The predicted
    classes stay the same.
    """

    needs_validation: ClassVar[bool] = True

    def merge(self, scene: Scene) -> Iterator[Upload]:
        if scene.validation is None or not len(scene.validation):
            raise ValueError("the fusion 'ridge-calibrated' needs validation images")
        seen = checked_images(scene.validation, scene.briefing)
        names = NET + "head.prototypes", NET + "head.bias"
        for found in super().merge(scene):
            weights, bias = (found.tensors[name] for name in names)
            factor = best_factor(seen, weights, bias, self.prior)
            event = {**found.header.telemetry[-1], "temperature": 1 / factor}
            header = found.header.model_copy(update={"telemetry": (event,)})
            yield Upload(header, found.tensors | {n: factor * found.tensors[n] for n in names})


def best_factor(seen: Checked, weights: Tensor, bias: Tensor, prior: Prior) -> float:
    """1 / T for the logits φWᵀ + b; with a uniform prior every class counts the same."""
    logits = SUREST * (seen.features.double() @ weights.double().T + bias.double())
    counts = torch.bincount(seen.labels, minlength=len(bias)).clamp(min=1)
    worth = torch.ones(len(logits)) if prior == "data" else 1 / counts[seen.labels].double()
    return SUREST * sureness(logits, seen.labels, worth)
