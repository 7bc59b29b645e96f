"""All balances of a client, one per alignment term, and the backward pass that uses them.

    ∇ = w_l ∇L_loc + Σ_t w_t ∇L_t,   plus (a_t − 1) ∇L_loc on the parameters of both L_t and L_loc

w_t and a_t are set by the t-th balance. w_l is the mean over the balances that weight L_loc, or 1
if there are none.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn

from accord.balance.base import Group, Step, Weigher, Weights
from accord.balance.gradients import Gradients, shared_gradients

DIALS = (
    *("lambda_raw", "attenuation", "lambda_effective", "lambda_star"),
    *("sigma_sq_local", "sigma_sq_align", "gamma"),
)
GRADIENTS = ("gradient_norm_local", "gradient_norm_align", "gradient_cosine")


class Mixture(nn.Module):
    """The balances, by the name of their alignment term. Without any balance ∇ = ∇L_loc."""

    def __init__(self, weighers: Mapping[str, Weigher]) -> None:
        super().__init__()
        self._weighers = nn.ModuleDict(dict(weighers))
        self._looks: dict[str, list[Tensor]] = {name: [] for name in weighers}

    @property
    def weighers(self) -> dict[str, Weigher]:
        return {name: w for name, w in self._weighers.items() if isinstance(w, Weigher)}

    def groups(self) -> list[Group]:
        return [group for weigher in self.weighers.values() for group in weigher.groups()]

    def backward(
        self,
        local: Mapping[str, Tensor],
        align: Mapping[str, Tensor],
        progress: float,
        parameters: list[nn.Parameter],
        look: bool = False,
        align_alone: bool = False,
    ) -> Tensor:
        """Computes the gradients of `parameters` and of the rules, and returns the weighted loss.

        If `look` is set, the gradients' norms and cosine are recorded for telemetry. `align_alone`
        marks an alignment stage, in which ∇ = Σ_t ∇L_t and no rule is used.
        """
        total_local = torch.stack(list(local.values())).sum()
        gradients = {
            name: shared_gradients(total_local, align[name], parameters)
            for name, weigher in self.weighers.items()
            if look or (weigher.wants_gradients and not align_alone)
        }
        if look:
            for name, found in gradients.items():
                self._looks[name].append(found.summary())
        steps = {
            name: Step(
                progress=progress,
                local=total_local.detach(),
                align=align[name].detach(),
                terms={term: loss.detach() for term, loss in local.items()},
                gradients=gradients.get(name),
            )
            for name in self.weighers
        }
        if align_alone:
            total = torch.stack(list(align.values())).sum()
            total.backward()  # type: ignore[no-untyped-call]
            return total.detach()
        weights = {name: w.weigh(steps[name]) for name, w in self.weighers.items()}
        total = _local_weight(weights) * total_local
        for name, chosen in weights.items():
            total = total + chosen.align * align[name]
        total.backward()  # type: ignore[no-untyped-call]
        for name, weigher in self.weighers.items():
            _rescale_shared(weights[name].shared, steps[name].gradients)
            own = weigher.own_loss(steps[name])
            if own is not None:
                own.backward()  # type: ignore[no-untyped-call]
        return total.detach()

    def dials(
        self,
        means: Mapping[str, tuple[float, float]],
        progress: float,
        align_alone: bool = False,
    ) -> dict[str, float | None]:
        """Telemetry of an epoch that ended at `progress`.

        `means` maps each alignment term to its mean (L_loc, L_al) in the epoch. With several
        alignment terms, each value's name begins with the name of its term. In an alignment stage
        the rules have no values.
        """
        if not means:
            return dict.fromkeys((*DIALS, *GRADIENTS))
        found: dict[str, float | None] = {}
        for name, weigher in self.weighers.items():
            prefix = f"{name.replace('-', '_')}_" if len(means) > 1 else ""
            values = dict.fromkeys(DIALS)
            if not align_alone:
                values = _values(weigher, means[name], progress)
            looks = self._looks[name]
            seen = torch.stack(looks).mean(dim=0).tolist() if looks else [None] * len(GRADIENTS)
            values |= dict(zip(GRADIENTS, seen, strict=True))
            looks.clear()
            found |= {prefix + dial: value for dial, value in values.items()}
        return found


def _values(
    weigher: Weigher, losses: tuple[float, float], progress: float
) -> dict[str, float | None]:
    """A rule's telemetry values, by name."""
    readings = weigher.readings(progress)
    values = {dial: getattr(readings, dial, None) for dial in DIALS}
    return {**values, "lambda_star": _finite(weigher.equilibrium(*losses, progress))}


def _local_weight(weights: Mapping[str, Weights]) -> Tensor | float:
    given = [chosen.local for chosen in weights.values() if chosen.local is not None]
    return torch.stack(given).mean() if given else 1.0


def _rescale_shared(factor: Tensor | None, gradients: Gradients | None) -> None:
    if factor is None or gradients is None:
        return
    for parameter, gradient in zip(gradients.parameters, gradients.local, strict=True):
        if parameter.grad is not None:
            parameter.grad += (factor - 1) * gradient


def _finite(value: float | None) -> float | None:
    """`value`, or None if it is infinite."""
    return value if value is not None and math.isfinite(value) else None
