"""One exchange: a briefing down, one upload per client up, and the fusions decide."""

from __future__ import annotations

from typing import Self

from accord.fusion.base import Scene
from accord.messages import ServerState
from accord.methods.base import Method, methods


@methods.register("one-shot")
class OneShot(Method):
    """Clients and server meet once."""

    @property
    def rounds(self) -> int:
        return 1

    def advance(self, state: ServerState, scene: Scene) -> ServerState:  # noqa: ARG002
        raise ValueError("a one-shot method has no next round")

    def with_rounds(self, count: int | None) -> Self:  # noqa: ARG002 - it stays one-shot
        return self
