"""SGD over a net and what its balances learn: learning rates, clipping, momentum."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from accord.balance import Group
from accord.core.budget import Budget
from accord.core.schedules import falling

MOMENTUM = "momentum."


class Optimiser:
    """One group for the net, and one for each that a balance asks for, without weight decay."""

    def __init__(self, net: list[nn.Parameter], groups: list[Group], budget: Budget) -> None:
        self.net, self.groups, self.budget = net, groups, budget
        self.sgd = torch.optim.SGD(
            [{"params": net}, *map(self._options, groups)],
            lr=budget.lr,
            momentum=budget.momentum,
            weight_decay=budget.weight_decay,
        )
        self._base_lrs = [group["lr"] for group in self.sgd.param_groups]

    def _options(self, group: Group) -> dict[str, Any]:
        return {
            "params": group.parameters,
            "lr": self.budget.lr * group.lr_factor,
            "momentum": self.budget.momentum if group.momentum == "net" else group.momentum,
            "weight_decay": 0.0,
        }

    @property
    def lr(self) -> float:
        """The net's, at the latest step."""
        lr: float = self.sgd.param_groups[0]["lr"]
        return lr

    def begin(self, progress: float) -> None:
        """Before a step's losses: learning rates of progress p, no gradients."""
        for group, lr in zip(self.sgd.param_groups, self._base_lrs, strict=True):
            group["lr"] = lr * falling(self.budget.schedule, progress)
        self.sgd.zero_grad(set_to_none=True)

    def finish(self) -> Tensor:
        """The step itself; 1 where clipping changed the net's gradient, else 0."""
        clipped = self._clip()
        self.sgd.step()
        return clipped

    def _clip(self) -> Tensor:
        if self.budget.clip is None:
            return torch.zeros((), device=self.net[0].device)
        together = list(self.net)
        for group in self.groups:
            if group.clip == "together":
                together += group.parameters
            else:
                nn.utils.clip_grad_norm_(group.parameters, self.budget.clip)
        norm = nn.utils.clip_grad_norm_(together, self.budget.clip)
        return (norm > self.budget.clip).float()

    def momentum(self) -> dict[str, Tensor]:
        """The momentum buffers there are, by name."""
        buffers = {
            f"{MOMENTUM}{index}": self.sgd.state[parameter].get("momentum_buffer")
            for index, parameter in enumerate(self._parameters())
        }
        return {name: buffer for name, buffer in buffers.items() if buffer is not None}

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Takes its momentum buffers back from a state's tensors."""
        for index, parameter in enumerate(self._parameters()):
            buffer = tensors.get(f"{MOMENTUM}{index}")
            if buffer is not None:
                # Same memory layout as the parameter, as the optimiser would have made it.
                kept = torch.empty_like(parameter).copy_(buffer)
                self.sgd.state[parameter]["momentum_buffer"] = kept

    def _parameters(self) -> list[nn.Parameter]:
        return [p for group in self.sgd.param_groups for p in group["params"]]
