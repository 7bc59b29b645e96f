"""How far a client has moved the weights of its net."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import ClassVar, Literal

from accord.auditing.kinds.base import Case, Kind, kinds
from accord.auditing.sign import Sign, ratio_strengths, times
from accord.core.names import shown
from accord.messages import NET, Upload
from accord.messages.upload import COUNTED

FACTOR = 5.0  # a client with many images does more steps, and moves further
ALL = "the whole net"


@kinds.register("size")
class Size(Kind):
    """‖W_k − W_0‖ of every layer and of the whole net, compared with the other clients.

    Only a larger change is a sign: a client with few images does few steps, and harms nobody.
    """

    name = "size"
    of: ClassVar[Literal["nets", "sums", "both"]] = "nets"

    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.norms: dict[str, dict[str, float]] = defaultdict(dict)  # layer → client → norm

    def see(self, upload: Upload) -> None:
        total = 0.0
        for name, tensor in upload.tensors.items():
            if not name.startswith(NET) or name.endswith(COUNTED):
                continue
            change = (tensor.double() - self.case.briefing.tensors[name].double()).norm().item()
            total += change**2
            if tensor.ndim > 1:
                self.norms[name.removeprefix(NET)][upload.header.client] = change
        self.norms[ALL][upload.header.client] = total**0.5

    def judge(self) -> Iterable[Sign]:
        worst: dict[str, Sign] = {}
        for layer, norms in self.norms.items():
            if not any(norms.values()):
                continue  # a layer that nobody trains
            for client, (far, ratio) in ratio_strengths(norms, factor=FACTOR).items():
                strength = far if ratio > 1 else 0.0
                text = (
                    f"client {shown(client)} changed {layer} by {norms[client]:.3g}, "
                    f"{times(ratio)} the median of all clients"
                )
                if client not in worst or strength > worst[client].strength:
                    worst[client] = Sign(client, self.name, strength, text)
        return worst.values()
