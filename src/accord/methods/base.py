"""What a recipe describes: how a federation starts, briefs its clients and goes on.

A method knows no engine, no files and no clock. After its last round the recipe's fusions make the
predictor, as for one round.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

from accord.core.config import Config
from accord.core.registry import Registry
from accord.fusion.base import Scene
from accord.messages import Briefing, ServerState


class Method(Config, ABC):
    """The parameters of a method; its functions turn one state of the server into the next."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """How often server and clients meet: one briefing down and one upload up each time."""

    def start(self, opening: Briefing) -> ServerState:
        """The state of round 1: initial weights, anchors, bank, as the `opening` has them."""
        told = opening.header.model_copy(update={"rounds": self.rounds})
        return ServerState.first(Briefing(told, opening.tensors))

    def brief(self, state: ServerState) -> Briefing:
        """The message to every client of the round that begins with `state`."""
        return state.briefing()

    @abstractmethod
    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        """The state of the next round, from the uploads of this one (`scene.uploads`)."""

    def with_rounds(self, count: int | None) -> Self:
        """The same method with another number of rounds, if it has several; None: as it is."""
        return self if count is None else self.model_copy(update={"count": count})

    def work(self, public: int) -> float:  # noqa: ARG002 - most only add
        """What going on takes, in images passed through the net, of so many public ones."""
        return 0.0

    def filled(self, fusion: dict[str, Any], where: str) -> Self:  # noqa: ARG002
        """With what it takes from its recipe, whose first fusion is `fusion`; checked."""
        return self


methods: Registry[type[Method]] = Registry("method", "accord.methods")
