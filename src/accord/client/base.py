"""What every client offers, whatever its briefing asks for.

A client works epoch by epoch, can be saved and restored between any two of them, and gives an
upload after any of them. It knows nothing of engines, files or other clients.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch

from accord.client.telemetry import Event
from accord.data.imageset import ImageSet
from accord.messages import Briefing, Memory, State, Upload

Tell = Callable[[float], None]  # hears the share of an epoch that is done
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Precision:
    """How this machine computes; never part of a message."""

    device: torch.device = CPU
    autocast: bool = False
    compile: bool = False


class Client(ABC):
    """One client's answer to one briefing, in the making.

    `epoch` counts the local epochs of all rounds that are over; this round ends at `last_epoch`.
    """

    def __init__(self, data: ImageSet, briefing: Briefing, name: str, precision: Precision) -> None:
        header = briefing.header
        self.data, self.briefing, self.name, self.precision = data, briefing, name, precision
        self.budget = header.budget
        self.classes = len(header.classes)
        self.epoch = header.first_epoch
        self.last_epoch = header.first_epoch + self.budget.epochs
        self.telemetry: list[Event] = []

    @property
    def done(self) -> bool:
        return self.epoch >= self.last_epoch

    @property
    def at_checkpoint(self) -> bool:
        return self.epoch - self.briefing.header.first_epoch in self.budget.checkpoints

    def share_done(self, of_epoch: float) -> float:
        """The share of this round that is done, when `of_epoch` of the current epoch is."""
        done = self.epoch - self.briefing.header.first_epoch
        return min(1.0, (done + of_epoch) / self.budget.epochs)

    @abstractmethod
    def run_epoch(self, tell: Tell | None = None) -> Event:
        """Works through one epoch and returns its telemetry."""

    @abstractmethod
    def upload(self) -> Upload:
        """The message to the server, as the work stands now."""

    def state(self) -> State | None:
        """Everything the next epoch depends on; None: there is nothing worth saving."""
        return None

    def restore(self, state: State) -> None:  # noqa: B027 - some have no state
        """Goes on from `state`, bit for bit as if never interrupted."""

    def memory(self) -> Memory | None:
        """What the client keeps for itself until its next round; None: nothing."""
        return None


def answer(client: Client) -> Upload:
    """The client's upload after all epochs of its round."""
    while not client.done:
        client.run_epoch()
    return client.upload()
