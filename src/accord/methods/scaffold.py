"""SCAFFOLD: FedAvg with corrected client drift (Karimireddy et al., 2020, arXiv:1910.06378).

Every client keeps a control variate c_k, an estimate of its own gradient, and the server keeps
their mean c. A client's steps use g − c_k + c, so that all clients move in a common direction
although their labels differ.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor

from accord.fusion.base import Scene, relative_weights
from accord.messages import CONTROL, NET, Briefing, ServerState, prefixed, unprefixed
from accord.messages.server_state import SERVER
from accord.methods.averaging import Averaging
from accord.methods.base import methods
from accord.nets.net import loaded_net

TOTAL = SERVER + CONTROL  # Σ_k v_k c_k over all clients that have sent an upload so far


@methods.register("scaffold")
class Scaffold(Averaging):
    """x ← x + η_g(merge − x); c ← Σ_k v_k c_k / (v̄·K), where v_k is n_k, √n_k or 1.

    The weights v_k are those of the merge. K is the number of all clients, and v̄ is the mean of
    v_k over the clients that have sent an upload so far; for the other clients c_k = 0. With equal
    weights this is the paper's c + Σ(c_k⁺ − c_k)/K. The control variates are sent in both
    directions, so the messages are about twice as large as those of FedAvg.
    """

    server_lr: float = Field(1.0, gt=0, description="η_g, the server's learning rate")

    def start(self, opening: Briefing) -> ServerState:
        zeros = prefixed(CONTROL, _zeros(opening))
        state = super().start(Briefing(opening.header, {**opening.tensors, **zeros}))
        totals = {TOTAL + name: t.double() for name, t in _zeros(opening).items()}
        return ServerState(state.header, {**state.tensors, **totals})

    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        net = self.merged(scene)
        for name in unprefixed(CONTROL, state.tensors):
            net[NET + name] = torch.lerp(state.tensors[NET + name], net[NET + name], self.server_lr)
        met, totals = self._controls(state, scene)
        usual = sum(met.values()) / len(met)
        control = {n: (t / (usual * scene.clients)).float() for n, t in totals.items()}
        changed = {**net, **prefixed(CONTROL, control), **prefixed(TOTAL, totals)}
        return state.next(changed, scene.answered, met=met)

    def _controls(
        self, state: ServerState, scene: Scene
    ) -> tuple[dict[str, float], dict[str, Tensor]]:
        """v_k of every client so far, and Σ_k v_k c_k with the changes of this round."""
        met = dict(state.header.own.get("met", {}))
        totals = unprefixed(TOTAL, state.tensors)
        for index in range(len(scene.uploads)):
            upload = scene.uploads.load(index)
            weight = met.setdefault(upload.header.client, self._weight(upload.header.samples))
            for name, change in unprefixed(CONTROL, upload.tensors).items():
                totals[name] = totals[name] + weight * change.double()
        return met, totals

    def _weight(self, samples: int) -> float:
        return relative_weights([samples], self.weighing).item()


def _zeros(opening: Briefing) -> dict[str, Tensor]:
    """A tensor of zeros for every parameter that clients train."""
    header = opening.header
    weights = unprefixed(NET, opening.tensors)
    net = loaded_net(header.net, header.channels, len(header.classes), weights)
    return {
        name: torch.zeros(p.shape, dtype=p.dtype)
        for name, p in net.named_parameters()
        if p.requires_grad
    }
