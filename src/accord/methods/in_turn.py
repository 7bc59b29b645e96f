"""Rounds in which one client trains at a time: every client goes on from the net of the one before.

With strong label skew, clients that start from the same net learn different classes, and the mean
of their nets keeps only a part of what each has learnt. A net that goes from client to client keeps
more of it. This is known as sequential federated learning (Li and Lyu, 2023, arXiv:2311.03154).
"""

from __future__ import annotations

from typing import Any, Self

import torch
from pydantic import Field
from torch import Tensor

from accord.core.budget import MOST_ROUNDS
from accord.core.errors import AccordError
from accord.core.parts import make_part
from accord.core.randomness import numpy_generator
from accord.fusion.average import Average
from accord.fusion.base import Scene, fusions
from accord.messages import NET, ServerState, prefixed, unprefixed
from accord.messages.server_state import SERVER
from accord.methods.averaging import Averaging
from accord.methods.base import methods

MEAN = SERVER + "mean."  # the sum of the nets of the last turn so far, divided by their number


@methods.register("in-turn")
class InTurn(Averaging):
    """W_{r+1} = W_{r,k(r)}, and after the last round R the mean of W_r over the last turn.

    k(r) visits all clients in a new random order in every turn. The mean over a turn gives every
    client the same weight and removes the noise of the last steps, as stochastic weight averaging
    does (Izmailov et al., 2018, arXiv:1803.05407).
    """

    count: int = Field(
        0,
        ge=0,
        le=MOST_ROUNDS,
        description="number of rounds, in each of which one client trains; the study's "
        "rounds.count replaces it. 0: turns · K with K clients, one visit to each in every turn",
    )
    turns: int = Field(
        4,
        ge=1,
        le=MOST_ROUNDS,
        description="the rounds are divided into this number of turns of equal length; the nets of "
        "the last turn are averaged",
    )

    @property
    def one_by_one(self) -> bool:
        return True

    @property
    def open_rounds(self) -> bool:
        return not self.count

    def rounds_for(self, clients: int) -> int:
        found = self.count or self.turns * clients
        if found > MOST_ROUNDS:
            raise AccordError(
                f"method.turns: {self.turns} turns of {clients} clients are {found} rounds; "
                f"expected at most {MOST_ROUNDS}. Use fewer turns or clients."
            )
        return found

    def require_clients(self, clients: int) -> None:
        least = self.turns * max(clients, 1)
        if self.rounds % least:
            asked = f"each round asks one of {clients} clients, and " if clients else ""
            raise AccordError(
                f"rounds.count: expected a multiple of {least}, because {asked}the method has "
                f"{self.turns} turns of equal length; found {self.rounds}. Remove rounds.count, or "
                "change method.turns."
            )

    def filled(self, fusion: dict[str, Any], where: str) -> Self:
        found = super().filled(fusion, where)
        if not isinstance(make_part(fusions, found.merge, where), Average):
            raise AccordError(
                f"{where}.method.merge: expected average, because each round has one upload and "
                f"nothing to compare it with; found {(found.merge or {}).get('use')}. Set average, "
                "or use a method whose clients train at the same time, such as averaging."
            )
        return found

    def chosen(self, clients: tuple[str, ...], seed: int, number: int) -> tuple[str, ...]:
        turn, place = divmod(number - 1, len(clients))
        order = numpy_generator(seed, "turns", turn).permutation(len(clients))
        return (clients[int(order[place])],)

    @property
    def turn(self) -> int:
        """The number of rounds of a turn."""
        return -(-self.rounds // self.turns)

    def measured(self, number: int) -> bool:
        """In the middle of a turn, the net is that of one client: one measurement a turn."""
        return number % self.turn == 0 or number == self.rounds

    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        following = super().advance(state, scene)
        left = self.rounds - scene.briefing.header.round
        if left >= self.turn:
            return following
        share = 1 / self.turn
        net = unprefixed(NET, following.tensors)
        before = unprefixed(MEAN, state.tensors)
        if left < self.turn - 1 and before.keys() != net.keys():
            raise AccordError(
                "the server's state is damaged: it lacks the mean of the last turn's nets so far. "
                "Restore it from a copy, or begin again."
            )
        mean = {
            name: before.get(name, torch.zeros_like(tensor, dtype=torch.double)) + share * tensor
            for name, tensor in net.items()
        }
        changed = prefixed(MEAN, mean)
        if left == 0:
            whole = {
                name: (total if net[name].is_floating_point() else total.round()).to(net[name])
                for name, total in mean.items()
            }
            changed |= prefixed(NET, self.finished(whole, scene))
        return ServerState(following.header, {**following.tensors, **changed})

    def finished(self, net: dict[str, Tensor], scene: Scene) -> dict[str, Tensor]:  # noqa: ARG002
        """The net of the result, from the mean over the last turn."""
        return net
