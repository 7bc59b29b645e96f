"""Turns that start at the server's teacher, with public images."""

from __future__ import annotations

from dataclasses import replace

from torch import Tensor

from accord.fusion.average import recalibrated
from accord.fusion.base import Scene
from accord.messages import NET, ServerState, prefixed, unprefixed
from accord.methods.base import methods
from accord.methods.from_teacher import FromTeacher, known_images
from accord.methods.in_turn import InTurn


@methods.register("in-turn-from-teacher")
class InTurnFromTeacher(InTurn, FromTeacher):
    """The method in-turn with W_1 = the teacher's weights, as in the method from-teacher.

    After every round the statistics of batch norm are measured again on the public images, because
    a client's own classes would distort them. With `relabel`, the net that came out labels these
    images anew after every turn.
    """

    def labels_anew(self, number: int) -> bool:
        return self.relabel and number % self.turn == 0

    def advance(self, state: ServerState, scene: Scene) -> ServerState:
        return super().advance(state, replace(scene, public=known_images(state, scene)))

    def merged(self, scene: Scene) -> dict[str, Tensor]:
        return prefixed(NET, self.finished(unprefixed(NET, super().merged(scene)), scene))

    def finished(self, net: dict[str, Tensor], scene: Scene) -> dict[str, Tensor]:
        return recalibrated(net, scene) if len(scene.public) else net
