"""Fusion of knowledge at a client: MergeNet's adapter is trained together with the net."""

from __future__ import annotations

import torch
from torch import Tensor

from accord.client.adam import Adam
from accord.messages import ADAPTER, SOURCE, Briefing, prefixed, unprefixed
from accord.nets.adapters import Enrichment
from accord.nets.net import Net

OPTIMISER = "adam."


class Enriching:
    """Every f batches W ← Ŵ = A_φ(W, Y), and then both W and φ take their usual step.

    The gradient of φ is J_φᵀ ∂L/∂Ŵ, where ∂L/∂Ŵ is the gradient that the net gets for its new
    weights, before clipping. φ is trained by Adam. A round without a fusion leaves φ as it is.
    """

    def __init__(self, net: Net, briefing: Briefing, device: torch.device) -> None:
        header, tensors = briefing.header, briefing.tensors
        if header.mergenet is None:
            raise ValueError("the briefing asks for no fusion at the clients")
        self.every, self.active = header.mergenet.f, header.mergenet.due(header.round)
        self.source = {n: t.to(device) for n, t in unprefixed(SOURCE, tensors).items()}
        weights = dict(net.named_parameters())
        self.enrichment = Enrichment(header.mergenet.pairs, weights, self.source, header.mergenet)
        self.enrichment.load_state_dict(unprefixed(ADAPTER, tensors))
        self.enrichment.to(device).train()
        self.layers = {name: weights[name] for name, _ in header.mergenet.pairs}
        self.optimiser = Adam(self.enrichment.parameters(), header.mergenet.lr)
        self.enriched: dict[str, Tensor] = {}  # the weights of the current step, with their graph

    @classmethod
    def of(cls, net: Net, briefing: Briefing, device: torch.device) -> Enriching | None:
        """None if the briefing asks for no fusion at the clients."""
        return None if briefing.header.mergenet is None else cls(net, briefing, device)

    def begin(self, step: int) -> None:
        """Replaces the paired layers before a forward pass; `step` counts over all rounds."""
        self.enriched = {}
        if not self.active or step % self.every:
            return
        self.optimiser.clear()
        own = {name: weight.detach().clone() for name, weight in self.layers.items()}
        self.enriched = self.enrichment(own, self.source)
        with torch.no_grad():
            for name, values in self.enriched.items():
                self.layers[name].copy_(values)

    def learn(self) -> None:
        """Trains φ after the backward pass of a step that began with a fusion.

        A layer that the losses of the step do not depend on has no gradient and teaches nothing.
        """
        met = [name for name in self.enriched if self.layers[name].grad is not None]
        if met:
            gradients = [self.layers[name].grad for name in met]
            torch.autograd.backward([self.enriched[name] for name in met], gradients)
            self.optimiser.step()
        self.enriched = {}

    def values(self) -> dict[str, Tensor]:
        """φ, by the names of a message."""
        return prefixed(ADAPTER, self.enrichment.state_dict())

    def state_dict(self) -> dict[str, Tensor]:
        """Everything that the next step depends on, by the names of a message."""
        return {**self.values(), **prefixed(ADAPTER + OPTIMISER, self.optimiser.state_dict())}

    def load_state_dict(self, tensors: dict[str, Tensor]) -> None:
        values = unprefixed(ADAPTER, tensors)
        self.optimiser.load_state_dict(unprefixed(OPTIMISER, values))
        self.enrichment.load_state_dict(
            {name: t for name, t in values.items() if not name.startswith(OPTIMISER)}
        )
