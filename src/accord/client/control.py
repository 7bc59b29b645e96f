"""SCAFFOLD's control variates at a client (Karimireddy et al., 2020, arXiv:1910.06378).

c is the server's estimate of the gradient of all clients; the briefing carries it. c_k is this
client's estimate of its own gradient; the client keeps it from round to round.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from accord.messages import CONTROL, Briefing, Memory, unprefixed
from accord.nets.net import Net

SEEN = "seen."  # prefix, in a client's state, of the sum of the gradients that it has used


class ControlVariate:
    """Corrects every gradient by c − c_k, and computes the next c_k.

    c_k⁺ = c_k − c + (1/T) Σ_t ĝ_t over the T steps of a round, where ĝ_t is the corrected gradient
    as the optimiser gets it (after clipping). For SGD without momentum and weight decay, at a
    constant learning rate η, this is the paper's option II, c_k − c + (x − y)/(Tη). Momentum and
    schedules change x − y, but not this mean, so c_k remains an estimate of a gradient.
    """

    def __init__(self, net: Net, server: dict[str, Tensor], own: dict[str, Tensor] | None) -> None:
        self.parameters = {n: p for n, p in net.named_parameters() if p.requires_grad}
        self.server = {name: _as(p, server[name]) for name, p in self.parameters.items()}
        self.before = {
            name: torch.zeros_like(p) if own is None else _as(p, own[name])
            for name, p in self.parameters.items()
        }
        self.correction = {name: c - self.before[name] for name, c in self.server.items()}
        self.seen = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.steps = 0

    @classmethod
    def of(cls, net: Net, briefing: Briefing, memory: Memory | None) -> ControlVariate | None:
        """The control variate of a client; None if the briefing carries no control variates."""
        server = unprefixed(CONTROL, briefing.tensors)
        own = unprefixed(CONTROL, memory.tensors) if memory is not None else None
        return cls(net, server, own) if server else None

    @torch.no_grad()
    def correct(self) -> None:
        """Adds c − c_k to the gradients, before they are clipped."""
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                parameter.grad.add_(self.correction[name])

    @torch.no_grad()
    def observe(self) -> None:
        """Adds the gradients that the optimiser has just used to their sum."""
        self.steps += 1
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                self.seen[name].add_(parameter.grad)

    def own(self) -> dict[str, Tensor]:
        """c_k⁺."""
        return {name: before + change for name, before, change in self._changes()}

    def change(self) -> dict[str, Tensor]:
        """c_k⁺ − c_k, which the server sums over the clients."""
        return {name: change for name, _, change in self._changes()}

    def _changes(self) -> list[tuple[str, Tensor, Tensor]]:
        return [
            (name, before, self.seen[name] / max(self.steps, 1) - self.server[name])
            for name, before in self.before.items()
        ]

    def state_dict(self) -> dict[str, Tensor]:
        """The sums of this round so far, to be saved in case of an interruption."""
        steps = {"steps": torch.tensor(self.steps)}
        return {**{SEEN + name: tensor for name, tensor in self.seen.items()}, **steps}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        for name, tensor in unprefixed(SEEN, tensors).items():
            self.seen[name].copy_(tensor)
        self.steps = int(tensors["steps"])


def _as(parameter: nn.Parameter, values: Tensor) -> Tensor:
    """`values` on the parameter's device, in its memory layout."""
    return torch.empty_like(parameter, requires_grad=False).copy_(values)
