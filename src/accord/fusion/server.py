"""The server's own net after a round: the one from which the next round would start."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from accord.fusion.average import one_net
from accord.fusion.base import Merge, Scene, Vote, fusions
from accord.fusion.outputs import OutputEnsemble
from accord.messages import NET, Upload, unprefixed


@fusions.register("server")
class Server(Merge):
    """The net that the recipe's method has made of the uploads, for methods with several rounds.

    For `averaging` it is the merged net, for `mergenet` the averaged and enriched net, and for
    `scaffold` the net after the server's step.
    """

    after_advance: ClassVar[bool] = True

    def asked(self) -> Vote:
        return OutputEnsemble()

    def merge(self, scene: Scene) -> Iterator[Upload]:
        if scene.after is None:
            raise ValueError("the server has not made the state of the next round")
        yield one_net("server", unprefixed(NET, scene.after.tensors), scene)
