"""The steps of a net and of its balances: SGD or Muon, learning rates, clipping, momentum.

A step of SGD is bit for bit the same as a step of `torch.optim.SGD`. It is written out here because
the first use of an optimiser of torch loads torch's compiler, which takes one second in every
worker.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from accord.balance import Group
from accord.client.momentum import gathered
from accord.client.muon import MuonGroup
from accord.core.budget import Budget

MOMENTUM = "momentum."
KERNEL = 4  # dimensions of the kernels of a convolution


@dataclass
class SGDGroup:
    """Some parameters with their own settings: v ← m·v + g + d·w, w ← w − η·v."""

    parameters: list[nn.Parameter]
    base_lr: float
    momentum: float
    weight_decay: float = 0.0
    lr: float = 0.0  # of the latest step
    buffers: dict[int, Tensor] = field(default_factory=dict)  # index of a parameter → its v

    @torch.no_grad()
    def step(self) -> None:
        for place, parameter in enumerate(self.parameters):
            if parameter.grad is None:
                continue
            gradient = parameter.grad
            if self.weight_decay:
                gradient = gradient.add(parameter, alpha=self.weight_decay)
            if self.momentum:
                gradient = gathered(self.buffers, place, gradient, self.momentum)
            parameter.add_(gradient, alpha=-self.lr)


class Optimiser:
    """One group for the net, and one without weight decay for each group of a balance.

    With `budget.muon`, the kernels of the net's convolutions are a group of their own.
    """

    def __init__(self, net: list[nn.Parameter], groups: list[Group], budget: Budget) -> None:
        self.net, self.groups, self.budget = net, groups, budget
        others, muon = net, list[MuonGroup]()
        if budget.muon is not None:
            others = [p for p in net if p.ndim != KERNEL]
            muon = [MuonGroup([p for p in net if p.ndim == KERNEL], budget.muon)]
        own = SGDGroup(others, budget.lr, budget.momentum, budget.weight_decay)
        self.parts: list[SGDGroup | MuonGroup] = [own, *muon, *map(self._group, groups)]

    def _group(self, group: Group) -> SGDGroup:
        momentum = self.budget.momentum if group.momentum == "net" else group.momentum
        return SGDGroup(group.parameters, self.budget.lr * group.lr_factor, momentum)

    @property
    def lr(self) -> float:
        """The net's learning rate in the latest step."""
        return self.parts[0].lr

    def begin(self, progress: float, epoch: int = 0) -> None:
        """Sets the learning rates for progress p and clears all gradients, before a step.

        `epoch` is the number of finished epochs over all rounds.
        """
        for group in self.parts:
            group.lr = group.base_lr * self.budget.lr_factor(progress, epoch)
            for parameter in group.parameters:
                parameter.grad = None

    def finish(self) -> Tensor:
        """Does the step. Returns 1 if clipping changed the net's gradient, else 0."""
        clipped = self._clip()
        for group in self.parts:
            group.step()
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
        """The existing momentum buffers, by name."""
        places = ((group, place) for group in self.parts for place in range(len(group.parameters)))
        return {
            f"{MOMENTUM}{index}": group.buffers[place]
            for index, (group, place) in enumerate(places)
            if place in group.buffers
        }

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Loads the momentum buffers from the tensors of a state."""
        index = 0
        for group in self.parts:
            for place, parameter in enumerate(group.parameters):
                buffer = tensors.get(f"{MOMENTUM}{index}")
                index += 1
                if buffer is not None:
                    # The first step would create the buffer with the parameter's memory layout.
                    kept = torch.empty_like(parameter, requires_grad=False).copy_(buffer)
                    group.buffers[place] = kept
