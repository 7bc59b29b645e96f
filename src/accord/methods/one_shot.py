"""One round: every client gets one briefing and sends one upload; then the fusions follow."""

from __future__ import annotations

from accord.fusion.base import Scene
from accord.messages import ServerState
from accord.methods.base import Method, methods


@methods.register("one-shot")
class OneShot(Method):
    """One round of communication between the clients and the server."""

    @property
    def rounds(self) -> int:
        return 1

    def advance(self, state: ServerState, scene: Scene) -> ServerState:  # noqa: ARG002
        raise ValueError("a one-shot method has no next round")
